//! Who decides in a world, and how it is asked: an era's policy for each open file, or one `wave` for all of them.
//!
//! The world has no opinion. It asks where the kernel of that era asked (at every read, at a miss, at a mark) and does what
//! comes out, through the public door of the core; `tests/worlds.rs` holds it to that.

use bowwave_core::{
    Action, Ask, AskKind, Config, Counters, Decision, Extent, FetchId, FileId, Input, Nanos, PageCount,
    PageIndex, PageTable, Policy, ReadState, Wave,
};
use std::rc::Rc;

/// Makes the policy of one open file.
pub type MakePolicy = Rc<dyn Fn() -> Box<dyn Policy>>;

/// Who fetches ahead in a world.
#[derive(Clone)]
pub enum Brain {
    /// An era of Linux, or a rival: one policy an open file, under a ceiling of so many pages.
    Era(MakePolicy, PageCount),
    /// `wave`, with what its driver can do.
    Wave(Config),
}

impl Brain {
    /// The era of that name under a ceiling of `max` pages.
    ///
    /// # Panics
    /// If the core knows no such era.
    pub fn era(name: &'static str, max: u64) -> Self {
        assert!(bowwave_core::by_name(name).is_some(), "an era of the core: {name}");
        Self::Era(Rc::new(move || bowwave_core::by_name(name).expect("looked up above")), PageCount(max))
    }
}

/// One open file of an era.
pub(super) struct OpenFile {
    policy: Box<dyn Policy>,
    state: ReadState,
    pub(super) hears_reads: bool,
}

impl OpenFile {
    pub(super) fn new(make: &MakePolicy, max: PageCount) -> Self {
        let policy = make();
        let hears_reads = policy.hears_reads();
        Self { policy, state: ReadState::new(max), hears_reads }
    }

    /// Asks, adds the windows to `out`, and returns what they want retained.
    pub(super) fn ask(
        &mut self,
        table: &PageTable,
        kind: AskKind,
        page: PageIndex,
        count: PageCount,
        out: &mut Vec<Decision>,
    ) -> Extent {
        self.policy.decide(table, &mut self.state, Ask { page, count, kind }, out);
        self.policy.retain()
    }

    pub(super) fn read_done(&mut self, pages: Extent, end_byte: u64) {
        self.policy.read_done(&mut self.state, pages, end_byte);
    }
    pub(super) fn state(&mut self) -> &mut ReadState {
        &mut self.state
    }
}

/// What `wave` wants fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) fetch: FetchId,
    pub(super) file: FileId,
    pub(super) pages: Extent,
    /// Somebody waits for it.
    pub(super) demand: bool,
}

/// `wave` and its door.
pub(super) struct WaveBrain {
    wave: Wave,
    config: Config,
}

impl WaveBrain {
    pub(super) fn new(config: Config, files: impl Iterator<Item = (FileId, u64)>) -> Self {
        let mut wave = Wave::new(config);
        for (file, pages) in files {
            wave.handle(Nanos(0), Input::Open { file, device: 0, size: PageCount(pages).bytes() });
        }
        Self { wave, config }
    }

    pub(super) fn reader_max(&self) -> PageCount {
        self.config.reader_max
    }

    pub(super) fn read_goes_first(&self) -> bool {
        self.config.read_goes_first
    }

    pub(super) fn awaits(&self, file: FileId, page: PageIndex) -> bool {
        self.wave.awaits(file, page)
    }

    pub(super) fn tell(&mut self, now: Nanos, input: Input) {
        self.wave.handle(now, input);
    }

    pub(super) fn wanted(&mut self, now: Nanos) -> Vec<Wanted> {
        let mut all = Vec::new();
        while let Some(Action::Fetch { id, file, pages, demand, .. }) = self.wave.poll(now) {
            all.push(Wanted { fetch: id, file, pages, demand });
        }
        self.wave.take_changed();
        all
    }

    pub(super) fn given_up(&mut self) -> Option<(FileId, Extent)> {
        self.wave.take_given_up()
    }

    pub(super) fn decisions(&mut self) -> impl Iterator<Item = bowwave_core::Explained> {
        self.wave.take_trace()
    }

    pub(super) fn counters(&self) -> Counters {
        *self.wave.counters()
    }

    pub(super) fn check(&self) {
        self.wave.check();
    }
}

//! `bowwave mount`: a directory, a URL or a bucket, read-only, through our page cache, until a signal or an unmount ends it.
//!
//! ```text
//!   $ bowwave mount s3://bucket/data /mnt/data
//!   s3://bucket/data on /mnt/data (256 MiB of memory); Ctrl-C unmounts
//!
//!   mount -t fuse.bowwave s3://bucket/data /mnt/data -o anonymous      with /sbin/mount.fuse.bowwave a link to bowwave
//!   == bowwave mount --daemon s3://bucket/data /mnt/data -o anonymous
//! ```
//!
//! Secrets are no arguments, which anybody on the machine can read: credentials come from the environment and `~/.aws`, and a
//! URL that holds a password from `BOWWAVE_SOURCE`.

use super::amount::amount;
use super::failure::{CANNOT_CREATE, Failure, OS_ERROR, USAGE, exit_code};
use super::serving::{READ_AHEAD_KB_MAX, Signals, code_of, follow_parent, serve, tell_ready};
use bowwave_core::Bytes;
use bowwave_fuse::{CachedMount, CachedOptions, CachedSource, metrics_address};
use bowwave_io::{BucketTree, DirTree, Error, HttpClient, HttpTree, S3Options, Tree, Until};
use bowwave_lab::DeviceModel;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long finding the region of a bucket may take.
const REGION_WAIT: Duration = Duration::from_secs(10);

/// Mount a directory, a URL or a bucket, read-only, through bowwave's page cache.
///
/// SOURCE is a directory (of a network mount, a disk, another FUSE mount), http(s)://HOST/PATH (a folder if it ends in a slash), or
/// s3://BUCKET/PREFIX. Credentials of S3 come from the environment, ~/.aws, or the machine, as for other programs; they
/// are never arguments. bowwave stat DIR and bowwave explain DIR tell what a mount does.
#[derive(clap::Args)]
#[command(override_usage = "bowwave mount [OPTIONS] [SOURCE] <DIR>")]
pub(crate) struct Args {
    /// What to mount, and the existing directory to mount it on; without SOURCE it is taken from BOWWAVE_SOURCE, where a URL
    /// that holds a password belongs
    #[arg(value_names = ["SOURCE", "DIR"], num_args = 1..=2, required = true)]
    places: Vec<OsString>,
    /// URL of an S3-compatible store that is not AWS
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region of the bucket; AWS_REGION, or asked for, if not given
    #[arg(long)]
    region: Option<String>,
    /// Do not sign requests: for public buckets
    #[arg(long)]
    anonymous: bool,
    /// Ceiling of all memory that the cache takes, such as 256M or 2G
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    memory: Bytes,
    /// Seconds for which names, lengths and listings are believed before the source is asked again
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    staleness: f64,
    /// Serve figures for Prometheus at this address; a port alone is on loopback
    #[arg(long, value_name = "ADDR", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Go to the background once it is mounted
    #[arg(long)]
    daemon: bool,
    /// Options as mount and fstab have them: memory=1G,anonymous,endpoint=URL,region=R,staleness=S,metrics=ADDR
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Write "ready" to this open file descriptor when mounted, and close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    ready_fd: Option<i32>,
    /// Create this file when mounted; it is removed at the end
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Once mounted, and after every other word of it, tell whoever started it here, and leave his terminal or pipe
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(i32).range(0..))]
    background: Option<i32>,
    /// Unmount and exit when the thread that started this process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// Serve generated files on a modelled device instead of SOURCE
    #[arg(long, value_name = "MODEL", hide = true)]
    device: Option<DeviceModel>,
    /// Write a line for each request to the modelled device
    #[arg(long, value_name = "FILE", hide = true, requires = "device")]
    log: Option<PathBuf>,
    /// Whether reads go through the kernel's page cache first
    #[arg(long, value_name = "BOOL", hide = true, action = clap::ArgAction::Set, default_value_t = KERNEL_CACHE)]
    kernel_cache: bool,
    /// The kernel's window, if reads go through its page cache
    #[arg(long, value_name = "KIB", hide = true, value_parser = clap::value_parser!(u64).range(..=READ_AHEAD_KB_MAX))]
    read_ahead_kb: Option<u64>,
    /// What mount(8) hands to its helpers, without a meaning here
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// All but the mount itself
    #[arg(short = 'f', hide = true)]
    fake: bool,
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    #[arg(short = 'v', hide = true)]
    verbose: bool,
}

/// By measurement: docs/decisions/0014.
const KERNEL_CACHE: bool = true;

/// Arguments as mount(8) has them for a helper: `mount.fuse.bowwave SOURCE DIR -o OPTIONS`.
pub(crate) fn as_helper(args: Vec<OsString>) -> Vec<OsString> {
    let helper = args
        .first()
        .and_then(|name| Path::new(name).file_name())
        .is_some_and(|name| [OsStr::new("mount.fuse.bowwave"), OsStr::new("mount.bowwave")].contains(&name));
    if !helper {
        return args;
    }
    let (name, rest) = args.split_at(1);
    let verb = [OsString::from("mount"), "--daemon".into()];
    name.iter().cloned().chain(verb).chain(rest.iter().cloned()).collect()
}

pub(crate) fn main(mut args: Args) -> anyhow::Result<ExitCode> {
    let outcome = args.take_options().and_then(|()| match (args.fake, args.daemon) {
        (true, _) => args.source().map(drop),
        (_, true) => daemon(),
        _ => run(&args),
    });
    Ok(exit_code("mount", outcome))
}

/// Memory for a cache.
fn size(text: &str) -> Result<Bytes, String> {
    amount(text).map(Bytes).ok_or_else(|| format!("'{}' is no size such as 256M or 2G", text.escape_debug()))
}

/// What a cache needs to work with at least.
const MEMORY_MIN: Bytes = Bytes(1 << 20);

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| format!("'{}' is no number of seconds from 0 to 1000000", text.escape_debug()))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("'{}' is no port and no address such as 127.0.0.1:9184", text.escape_debug());
    metrics_address(text).ok_or_else(wrong)
}

/// What mount and fstab say to everybody, and what a read-only mount of ours is anyway or does not care for.
const OF_MOUNT: [&str; 24] = [
    "ro",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "nofail",
    "_netdev",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "relatime",
    "async",
    "sync",
    "allow_other",
    "default_permissions",
];

impl Args {
    fn take_options(&mut self) -> Result<(), Failure> {
        let usage = |sentence: String| Failure::new(USAGE, sentence);
        for option in std::mem::take(&mut self.options) {
            match option.split_once('=').map_or((option.as_str(), None), |(name, value)| (name, Some(value)))
            {
                ("endpoint", Some(url)) => self.endpoint = Some(url.into()),
                ("region", Some(region)) => self.region = Some(region.into()),
                ("memory", Some(text)) => self.memory = size(text).map_err(usage)?,
                ("staleness", Some(text)) => self.staleness = seconds(text).map_err(usage)?,
                ("metrics", Some(text)) => self.metrics = Some(address(text).map_err(usage)?),
                ("anonymous", None) => self.anonymous = true,
                ("", None) => {}
                (name, _) if OF_MOUNT.contains(&name) || name.starts_with("x-") => {}
                // What it is set to may be a secret.
                (name, _) => {
                    let name: String = name.chars().filter(|c| !c.is_control()).collect();
                    let sentence = format!(
                        "no option '{name}': endpoint=URL, region=R, memory=SIZE, staleness=SECONDS, metrics=ADDR or anonymous"
                    );
                    return Err(usage(sentence));
                }
            }
        }
        if let Some(machine) =
            bowwave_steer::meminfo("MemTotal:").map(Bytes).filter(|machine| self.memory > *machine)
        {
            return Err(usage(format!(
                "a cache of {} MiB is more than the memory of this machine, {} MiB",
                self.memory.0 >> 20,
                machine.0 >> 20
            )));
        }
        if self.memory < MEMORY_MIN {
            return Err(usage(format!(
                "a cache of {} bytes is too small: give it 1M at least",
                self.memory.0
            )));
        }
        Ok(())
    }

    fn dir(&self) -> &Path {
        self.places.last().map_or(Path::new(""), Path::new)
    }

    fn named_source(&self) -> Option<OsString> {
        match self.places.as_slice() {
            [source, _] => Some(source.clone()),
            _ => std::env::var_os("BOWWAVE_SOURCE"),
        }
    }

    fn source(&self) -> Result<CachedSource, Failure> {
        if let Some(model) = self.device {
            return Ok(CachedSource::Modelled(model, self.log.clone()));
        }
        let missing = "two places are needed, and one was named: SOURCE (a directory, http(s)://HOST/PATH or s3://BUCKET/PREFIX; or \
                       in BOWWAVE_SOURCE) and the DIR to mount it on";
        let source = self.named_source().ok_or_else(|| Failure::new(USAGE, missing))?;
        let source = source.as_os_str();
        let of_source = |error: Error| match error {
            Error::Wrong { object, what } => Failure::new(USAGE, format!("{object}: {what}")),
            error => Failure::new(code_of(&error), format!("cannot mount {error}")),
        };
        let tree: Arc<dyn Tree> = match source.to_str().and_then(|text| text.split_once("://")) {
            None => {
                let real = fs::canonicalize(source).map_err(|error| {
                    let object: Arc<str> = source.to_string_lossy().as_ref().into();
                    let error = Error::io(&object, error);
                    Failure::new(code_of(&error), format!("cannot mount {error}; name an existing directory"))
                })?;
                apart(&real, self.dir())?;
                Arc::new(DirTree::open(real).map_err(of_source)?)
            }
            Some(("http" | "https", rest)) => {
                self.no_secret_argument(rest)?;
                let client = HttpClient::new().map_err(of_source)?;
                Arc::new(HttpTree::new(&client, &source.to_string_lossy()).map_err(of_source)?)
            }
            Some(("s3", _)) => {
                let options = S3Options {
                    endpoint: self.endpoint.clone(),
                    region: self.region.clone(),
                    anonymous: self.anonymous,
                };
                let until = Until::after(REGION_WAIT);
                Arc::new(BucketTree::s3(&source.to_string_lossy(), &options, &until).map_err(of_source)?)
            }
            Some((scheme, _)) => {
                let scheme: String = scheme.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
                let sentence =
                    format!("cannot mount a {scheme}:// URL: a directory, http(s):// or s3:// it may be");
                return Err(Failure::new(USAGE, sentence));
            }
        };
        Ok(CachedSource::Tree(tree))
    }

    /// A password or a signed query among the arguments is there for everybody to read.
    fn no_secret_argument(&self, rest: &str) -> Result<(), Failure> {
        // A URL may begin with more slashes than two, either way round, and with blanks that nobody sees.
        let rest = rest.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
        let authority = rest.split(['/', '\\']).next().unwrap_or_default();
        let secret = authority.contains('@') || rest.contains('?');
        if secret && self.places.len() == 2 {
            let sentence = "the URL holds a password or a query, which others can read among the arguments; put it into \
                            BOWWAVE_SOURCE instead: BOWWAVE_SOURCE=URL bowwave mount DIR";
            return Err(Failure::new(USAGE, sentence));
        }
        Ok(())
    }
}

/// The mount would wait for itself.
fn apart(source: &Path, dir: &Path) -> Result<(), Failure> {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.into());
    if dir.starts_with(source) || source.starts_with(&dir) {
        let sentence =
            format!("cannot mount {} on {}: neither may contain the other", source.display(), dir.display());
        return Err(Failure::new(CANNOT_CREATE, sentence));
    }
    Ok(())
}

fn run(args: &Args) -> Result<(), Failure> {
    // Before any thread starts, so that every thread leaves the signals to us.
    let signals = Signals::take()?;
    if args.exit_with_parent {
        follow_parent();
    }
    raise_open_files();
    give_bodies_back();
    let source = args.source()?;
    let mut mount = CachedMount::mount(CachedOptions {
        source,
        dir: args.dir().into(),
        memory: args.memory,
        staleness: Duration::from_secs_f64(args.staleness),
        kernel_cache: args.kernel_cache,
        read_ahead_kb: args.read_ahead_kb,
        metrics: args.metrics,
    })?;
    let metrics = mount.metrics().map_or(String::new(), |at| format!("; metrics on http://{at}/metrics"));
    let _ = writeln!(
        io::stderr(),
        "{} on {} ({} MiB of memory){metrics}; Ctrl-C unmounts",
        mount.source(),
        mount.dir().display(),
        args.memory.0 >> 20
    );
    let told = tell_ready(args.ready_fd, args.ready_file.as_deref());
    let told = told.and_then(|()| tell_ready(args.background, None));
    // After the word, which closes the pipe that the log's process must not inherit.
    if args.background.is_some() && told.is_ok() {
        leave_standard_error();
    }
    let ended = told.and_then(|()| serve(&signals, &mut mount));
    if let Some(path) = &args.ready_file {
        // It may be gone with its directory by now.
        let _ = fs::remove_file(path);
    }
    ended
}

/// A descriptor a local file that is open: as many as the system allows us.
fn raise_open_files() {
    // SAFETY: the structure is plain numbers, and outlives both calls. A refusal changes nothing.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// The bodies of requests go back to the system as soon as they are copied. Left alone, glibc raises the size from which it does so
/// to that of the largest body, and then keeps what 64 requests had at once: 107 MB were resident under a ceiling of 64 MiB.
fn give_bodies_back() {
    // SAFETY: no thread of ours runs yet. A refusal changes nothing.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// What is said from now on goes to the system's log where there is `logger`, else nowhere.
fn leave_standard_error() {
    let mut logger = Command::new("logger");
    logger.args(["-t", "bowwave"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let log = logger.spawn().ok().and_then(|mut logger| logger.stdin.take()).map(OwnedFd::from);
    let to = log.or_else(|| File::options().write(true).open("/dev/null").ok().map(OwnedFd::from));
    if let Some(to) = to {
        // SAFETY: both are open descriptors of ours; the second keeps its number.
        unsafe { libc::dup2(to.as_raw_fd(), libc::STDERR_FILENO) };
    }
}

/// Starts this command again in a session of its own, and waits until it is mounted or has said why not. Nobody's terminal or
/// pipe is kept open after that.
fn daemon() -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| Failure::new(OS_ERROR, format!("cannot {what}: {error}"));
    let exe = std::env::current_exe().map_err(|error| failed("find this program", error))?;
    let (ready, told) = io::pipe().map_err(|error| failed("make a pipe", error))?;
    let words = tempfile::tempfile().map_err(|error| failed("make a temporary file", error))?;
    let said = words.try_clone().map_err(|error| failed("copy a descriptor", error))?;
    let args = as_helper(std::env::args_os().collect());
    let mut command = Command::new(exe);
    command.args(args.into_iter().skip(1).filter(|arg| arg.as_bytes() != b"--daemon"));
    let fd = told.as_raw_fd();
    command.args(["--background", &fd.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    // SAFETY: both calls are allowed between fork and exec; the descriptor is open in the child.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
            libc::setsid();
            libc::fcntl(fd, libc::F_SETFD, 0);
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|error| failed("start the daemon", error))?;
    drop(told);
    let mut word = [0; 5];
    let mut ready = ready;
    // An end without a word is an end of the daemon.
    if ready.read_exact(&mut word).is_ok() {
        return Ok(());
    }
    let status = child.wait().map_err(|error| failed("wait for the daemon", error))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(OS_ERROR);
    let said = read_back(words).unwrap_or_default();
    let said = said.lines().find_map(|line| line.strip_prefix("bowwave mount: ")).unwrap_or(said.trim());
    let sentence = said.to_owned();
    Err(Failure::new(
        code,
        if sentence.is_empty() { format!("the daemon ended ({status})") } else { sentence },
    ))
}

fn read_back(mut words: File) -> io::Result<String> {
    words.rewind()?;
    let mut text = String::new();
    words.take(8192).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_has_room_in_this_machine() {
        let told = |memory: &str| {
            let taken = parsed(&["/source", "/dir", "--memory", memory]).take_options();
            taken.err().map(|failure| (failure.code, failure.sentence))
        };
        assert_eq!(told("256M"), None);
        let (code, sentence) = told("9000000T").expect("no machine has as much");
        assert!(code == USAGE && sentence.contains("more than the memory of this machine"), "{sentence}");
        assert!(told("0").is_some_and(|(code, _)| code == USAGE));
    }

    #[test]
    fn mount_calls_its_helper_by_name() {
        let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            as_helper(args("/sbin/mount.fuse.bowwave s3://b /mnt -o ro,memory=1G")),
            args("/sbin/mount.fuse.bowwave mount --daemon s3://b /mnt -o ro,memory=1G")
        );
        assert_eq!(as_helper(args("bowwave mount a b")), args("bowwave mount a b"));
    }

    fn parsed(args: &[&str]) -> Args {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            args: Args,
        }
        <Alone as clap::Parser>::parse_from([&["mount"], args].concat()).args
    }

    #[test]
    fn options_are_understood_or_named_and_never_repeated() {
        let corpus = [
            "ro,memory=1G,anonymous",
            "staleness=2.5,metrics=:9184",
            "endpoint=http://h:9000,region=x,x-y=1",
            "\u{1b}[31m=2",
        ];
        bowwave_fuzz::fuzz_text("mount options", &corpus, |text| {
            let mut args = parsed(&["/source", "/dir"]);
            args.options = text.split(',').chain(["secret_key=hunter2"]).map(String::from).collect();
            let failure = args.take_options().expect_err("no option 'secret_key'");
            assert!(failure.code == USAGE && !failure.sentence.contains("hunter2"), "{}", failure.sentence);
            assert!(!failure.sentence.contains(char::is_control), "{:?}", failure.sentence);
        });
        bowwave_fuzz::fuzz_text("a size", &["256M", "2GiB", "4096", "1t"], |text| {
            let Ok(bytes) = size(text) else { return };
            assert_eq!(size(&bytes.0.to_string()), Ok(bytes));
        });
        bowwave_fuzz::fuzz_text("seconds", &["5", "0.5", "1e6"], |text| {
            assert!(
                seconds(text).is_ok_and(|s| std::time::Duration::try_from_secs_f64(s).is_ok())
                    || seconds(text).is_err()
            );
        });
    }

    #[test]
    fn a_password_among_the_arguments_is_refused_however_it_is_written() {
        let args = parsed(&["http://x", "/dir"]);
        bowwave_fuzz::fuzz_text("slashes", &["", "/", "\\//\t", "\n\r/", "//ann"], |text| {
            let slashes: String = text.chars().filter(|c| "/\\\t\n\r".contains(*c)).collect();
            for behind in ["ann:hunter2@host/a", "ann:hunter2@host\\a", "host/a?token=hunter2"] {
                let failure = args.no_secret_argument(&format!("{slashes}{behind}")).expect_err("a secret");
                assert!(!failure.sentence.contains("hunter2"));
            }
        });
        assert!(args.no_secret_argument("host/mail@folder").is_ok());
    }
}

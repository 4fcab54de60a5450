//! `bowwave slow`: a directory, or generated files, at a modelled device's pace, until a signal or an unmount ends it.
//!
//! ```text
//!   $ bowwave slow /mnt/slow --device s3
//!   serving generated files at s3 (lat=30ms,bw=1GB/s,conn=90MB/s,slots=64) on /mnt/slow; Ctrl-C unmounts
//!
//!   Ctrl-C, TERM, HUP -> unmount - busy -> again for 3 s - still busy, or Ctrl-C -> detach -> exit
//! ```

use super::failure::{Failure, USAGE, exit_code};
use super::out::print;
use super::serving::{READ_AHEAD_KB_MAX, Signals, follow_parent, serve, tell_ready};
use bowwave_fuse::{Options, ROUND_TRIP, SlowStore};
use bowwave_lab::DeviceModel;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve a directory, or generated files, at a modelled device's pace.
///
/// Without SOURCE the files are generated: big/000..255 (16 GiB each), small/000..255 (8 MiB each), and gen/NAME-BYTES, which is
/// made with that many bytes when it is looked up. Reading .bowwave/stats, files or model in DIR tells JSON; reading
/// .bowwave/reset sets the counters to 0, the device to idle and starts the log anew. A file of SOURCE that changes is what it
/// is now to whoever opens it, and to everybody else within a second.
#[derive(clap::Args)]
#[command(override_usage = "bowwave slow [OPTIONS] [SOURCE] <DIR>")]
pub(crate) struct Args {
    /// Directory to serve, read-only (generated files if not given), and the existing directory to mount it on
    #[arg(value_names = ["SOURCE", "DIR"], num_args = 1..=2, required = true)]
    places: Vec<PathBuf>,
    /// hdd, ssd, nfs, s3, one of them with other parts ('hdd,fifo', 's3,slots=16'), or
    /// 'lat=30ms,conn=90MB/s,slots=64,bw=1GB/s'; parts: lat= bw= conn= slots= head fifo skip
    #[arg(long, value_name = "MODEL", default_value = "s3")]
    device: String,
    /// Set the mount's read_ahead_kb; without it the kernel's default holds (128)
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(..=READ_AHEAD_KB_MAX))]
    read_ahead_kb: Option<u64>,
    /// Write a line for each read request: arrival us, completion us, file, offset, bytes (tab-separated; complete after a
    /// read of .bowwave/stats and at the end)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Lookup, getattr, readdir and open cost one device latency each, instead of nothing
    #[arg(long)]
    metadata: bool,
    /// Answer this many microseconds early to make up for the FUSE round trip (devices without a head); 0 switches it off
    #[arg(long, value_name = "US", default_value_t = ROUND_TRIP.as_micros() as u64)]
    round_trip: u64,
    /// Write "ready" to this open file descriptor when mounted, and close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    ready_fd: Option<i32>,
    /// Create this file when mounted; it is removed at the end
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Unmount and exit when the thread that started this process ends
    #[arg(long)]
    exit_with_parent: bool,
    /// Print the statistics as JSON on stdout at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(exit_code("slow", run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    let model: DeviceModel = args
        .device
        .parse()
        .map_err(|error: bowwave_lab::DeviceModelError| Failure::new(USAGE, error.to_string()))?;
    let (source, dir) = match &args.places[..] {
        [dir] => (None, dir),
        [source, dir] => (Some(source), dir),
        _ => {
            return Err(Failure::new(USAGE, "more than two places; name a SOURCE and a DIR, or a DIR"));
        }
    };
    // Before any thread starts, so that every thread leaves the signals to us.
    let signals = Signals::take()?;
    if args.exit_with_parent {
        follow_parent();
    }
    let mut store = SlowStore::mount(&Options {
        source: source.cloned(),
        dir: dir.clone(),
        model,
        read_ahead_kb: args.read_ahead_kb,
        log: args.log.clone(),
        metadata: args.metadata,
        round_trip: Duration::from_micros(args.round_trip),
    })?;
    let what = source.map_or("generated files".into(), |source| source.display().to_string());
    let pace = model.name().map_or(model.to_string(), |name| format!("{name} ({model})"));
    eprintln!("serving {what} at {pace} on {}; Ctrl-C unmounts", store.dir().display());

    let told = tell_ready(args.ready_fd, args.ready_file.as_deref());
    let ended = match told {
        Ok(()) => serve(&signals, &mut store),
        Err(failure) => Err(failure),
    };
    if let Some(path) = &args.ready_file {
        // It may be gone with its directory by now.
        let _ = fs::remove_file(path);
    }
    ended?;
    if args.json {
        let stats = serde_json::to_string_pretty(&store.stats()).expect("plain data");
        print(format_args!("{stats}\n"))?;
    }
    Ok(())
}

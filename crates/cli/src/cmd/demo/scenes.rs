//! The ten scenes: what a program does, on which device, and how much of the published volume is read.
//!
//! Chosen to tell: kinds of reading that readahead is known to serve and kinds that it is known to fail, on devices that
//! differ; one where nothing can help, so that harm would show. Volumes keep a run under bowwave well under a second or
//! two; slower arms are stopped at the cap.

/// A pattern, a device, and what to say of it.
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) pattern: &'static str,
    pub(super) device: &'static str,
    pub(super) volume: f64,
}

const fn scene(
    title: &'static str,
    about: &'static str,
    pattern: &'static str,
    device: &'static str,
    volume: f64,
) -> Scene {
    Scene { title, about, pattern, device, volume }
}

pub(super) const SCENES: [Scene; 10] = [
    scene(
        "one big file",
        "64 KiB reads from start to end: cat, tar, a model being loaded",
        "seq_64k",
        "s3",
        0.5,
    ),
    scene("8 streams", "8 readers by turns on one descriptor: a merge of sorted runs", "il8_1fd", "s3", 0.25),
    scene("32 streams", "32 readers by turns on one descriptor: a busy server", "il32_1fd", "hdd", 0.15),
    scene("matrix columns", "columns of a matrix of 64 rows, page by page", "matrix64", "nfs", 0.25),
    scene("sparse", "read 8 KiB, skip 8 KiB: a few columns of a table of records", "sparse_8k", "s3", 0.25),
    scene("backwards", "64 KiB reads from end to start: tac, undo logs", "rev_64k", "nfs", 0.5),
    scene(
        "clustered random",
        "random reads in 1 MiB neighbourhoods: pages of an index",
        "rnd_clu",
        "s3",
        0.06,
    ),
    scene("16 threads", "an NFS server: 16 threads take reads out of order", "nfs16_own", "s3", 0.5),
    scene("parquet", "64 files: footer first, then column chunks", "parquet", "s3", 0.25),
    scene(
        "uniform random",
        "single random pages of 12 GiB: nothing can help, harm would show",
        "rnd_sparse",
        "ssd",
        0.5,
    ),
];

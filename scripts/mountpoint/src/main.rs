//! Mounts a bucket as mountpoint-s3 does, until it is unmounted: `mountpoint BUCKET DIR ENDPOINT MEMORY-MIB`, without credentials.
//!
//! Parts of 8 MiB, the first request of 1.125 MiB and the default prefetcher, as the published program has them.

use std::error::Error;
use std::path::PathBuf;

use mountpoint_s3_client::S3CrtClient;
use mountpoint_s3_client::config::{
    AddressingStyle, Allocator, EndpointConfig, S3ClientAuthConfig, S3ClientConfig, Uri,
};
use mountpoint_s3_fs::fuse::S3FuseFilesystem;
use mountpoint_s3_fs::fuse::config::{FuseOptions, FuseSessionConfig, MountPoint};
use mountpoint_s3_fs::fuse::session::FuseSession;
use mountpoint_s3_fs::memory::{CandidateSize, PagedPool};
use mountpoint_s3_fs::prefetch::Prefetcher;
use mountpoint_s3_fs::s3::{Bucket, S3Path};
use mountpoint_s3_fs::{Runtime, S3Filesystem, S3FilesystemConfig, Superblock, SuperblockConfig};

/// Bytes of a part, and of the first request of a stream.
const PART: usize = 8 << 20;
const FIRST: usize = (1 << 20) + (128 << 10);
/// Threads that serve the kernel.
const THREADS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, dir, endpoint, memory_mib] = args.as_slice() else {
        return Err("usage: mountpoint BUCKET DIR ENDPOINT MEMORY-MIB".into());
    };
    let pool = PagedPool::config()
        .with_candidate_sizes([CandidateSize::new(FIRST), CandidateSize::new(PART)])
        .with_memory_limit(memory_mib.parse::<usize>()? << 20)
        .build();
    let endpoint = EndpointConfig::new("us-east-1")
        .endpoint(Uri::new_from_str(&Allocator::default(), endpoint)?)
        .addressing_style(AddressingStyle::Path);
    let client = S3CrtClient::new(
        S3ClientConfig::new()
            .auth_config(S3ClientAuthConfig::NoSigning)
            .endpoint_config(endpoint)
            .read_backpressure(true)
            .read_part_size(PART)
            .initial_read_window(FIRST)
            .memory_pool(pool.clone()),
    )?;
    let runtime = Runtime::new(client.event_loop_group());
    let config = S3FilesystemConfig { read_only: true, ..Default::default() };
    let of_bucket =
        SuperblockConfig { cache_config: config.cache_config.clone(), s3_personality: config.s3_personality };
    let path = S3Path::new(Bucket::new(bucket.as_str())?, Default::default());
    let superblock = Superblock::new(client.clone(), path, of_bucket);
    let prefetcher = Prefetcher::default_builder(client.clone());
    let filesystem = S3Filesystem::new(client, prefetcher, pool, runtime, superblock, config);
    let options = FuseOptions { read_only: true, ..Default::default() };
    let at = MountPoint::new(PathBuf::from(dir))?;
    let session = FuseSession::new(
        S3FuseFilesystem::new(filesystem, None),
        FuseSessionConfig::new(at, options, THREADS)?,
    )?;
    Ok(session.join()?)
}

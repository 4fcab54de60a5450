//! S3 and what speaks it: how a bucket is reached, and whether anybody is there.
//!
//! Credentials come from where programs of AWS look for them, in their order: environment, `~/.aws` (with `AWS_PROFILE`), web
//! identity, process, container, machine. They are never taken from arguments, and never shown.
//!
//! ```text
//!   s3://bucket/data                                    https://s3.REGION.amazonaws.com/bucket/data/
//!   s3://bucket/data, endpoint http://127.0.0.1:9000    http://127.0.0.1:9000/bucket/data/
//!
//!   region   what is given, else AWS_REGION, AWS_DEFAULT_REGION, else what the bucket says (AWS), else us-east-1
//! ```

use super::BucketTree;
use crate::http::{HttpClient, cause, drive, endpoint, parse, shown};
use crate::{Error, Until};
use opendal::Operator;
use opendal::services::S3;
use reqwest::Url;
use std::sync::Arc;

/// How a bucket is reached.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Of a store other than AWS: `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Of the bucket, if it is known.
    pub region: Option<String>,
    /// Requests are not signed: for public buckets.
    pub anonymous: bool,
}

/// A store whose region is nobody's concern takes any.
const REGION_OF_OTHERS: &str = "us-east-1";
const AWS: &str = "https://s3.amazonaws.com";

impl BucketTree {
    /// What `s3://BUCKET/PREFIX` names. Of a bucket of AWS the region may be asked for; of an endpoint that is named it is asked
    /// whether anybody answers, since a request that cannot be signed would not even find that out.
    ///
    /// # Errors
    /// [`Error::Wrong`] of what is no such URL; [`Error::Io`] where nobody answers.
    pub fn s3(url: &str, options: &S3Options, until: &Until) -> Result<Self, Error> {
        let (bucket, prefix, at) = place(url, options.endpoint.as_deref().unwrap_or(AWS))?;
        let name = format!("s3://{bucket}/{prefix}");
        let mut builder = S3::default()
            .bucket(bucket)
            .root(prefix)
            .region(&region(bucket, options, until)?)
            .endpoint(&shown(&at));
        if options.anonymous {
            builder = builder.skip_signature().disable_config_load().disable_ec2_metadata();
        }
        if options.endpoint.is_some() {
            answers(&name, &at, until)?;
        }
        let object: Arc<str> = name.as_str().into();
        let operator = Operator::new(builder).map_err(|error| super::of_store(&object, &error))?;
        Self::new(&name, operator, endpoint(&at))
    }
}

/// The bucket and the prefix that a URL names, and the endpoint where they are.
fn place<'u>(url: &'u str, at: &str) -> Result<(&'u str, &'u str, Url), Error> {
    let wrong = |what: &str| Error::Wrong { object: "the s3:// URL".into(), what: what.into() };
    let rest = url.strip_prefix("s3://").ok_or_else(|| wrong("it does not begin with s3://"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if bucket.is_empty() || bucket.len() > NAME_MAX || !bucket.bytes().all(allowed) {
        // What stands where the bucket should may be a key: it is not repeated.
        return Err(wrong("its bucket has no name that a bucket can have"));
    }
    let prefix = prefix.trim_end_matches('/');
    let plain = prefix.trim() == prefix && (prefix.is_empty() || crate::TreePath::parse(prefix).is_ok());
    if !plain {
        return Err(wrong("its prefix is no plain path"));
    }
    let at = parse(at)?;
    if !at.username().is_empty() || at.password().is_some() || at.query().is_some() {
        return Err(wrong("its endpoint holds credentials; put them into the environment or ~/.aws"));
    }
    Ok((bucket, prefix, at))
}

/// Whether anything answers at `at`, whatever it says.
fn answers(name: &str, at: &Url, until: &Until) -> Result<(), Error> {
    let object: Arc<str> = format!("{name} at {}", shown(at)).into();
    let client = HttpClient::new()?;
    let asked = client.inner().head(at.clone());
    drive(until, &object, async { asked.send().await.map_err(|error| cause(&object, error)) }).map(drop)
}

/// No bucket has a longer name.
const NAME_MAX: usize = 255;

fn region(bucket: &str, options: &S3Options, until: &Until) -> Result<String, Error> {
    let given = options.region.clone().or_else(|| std::env::var("AWS_REGION").ok());
    if let Some(region) = given.or_else(|| std::env::var("AWS_DEFAULT_REGION").ok()).filter(|r| !r.is_empty())
    {
        return Ok(region);
    }
    if options.endpoint.is_some() {
        return Ok(REGION_OF_OTHERS.into());
    }
    // AWS names the region of any bucket to anybody, whatever else it answers.
    let object: Arc<str> = format!("s3://{bucket}").into();
    let client = HttpClient::new()?;
    let asked = client.inner().head(format!("{AWS}/{bucket}"));
    let answer = drive(until, &object, async { asked.send().await.map_err(|error| cause(&object, error)) })?;
    let told = answer.headers().get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
    Ok(told.unwrap_or(REGION_OF_OTHERS).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_without_a_secret() {
        let corpus = [
            "s3://bucket/data",
            "s3://bucket/a/../b",
            "s3://KEY:hunter2@bucket/",
            "s3://bucket/ x\nhttp://127.0.0.1:9000",
            "s3://bucket\nhttps://KEY:hunter2@127.0.0.1:9000/?hunter2",
        ];
        bowwave_fuzz::fuzz_text("an s3:// URL", &corpus, |text| {
            let (url, at) = text.split_once('\n').unwrap_or((text, AWS));
            match place(url, at) {
                Err(error) => assert!(!error.to_string().contains("hunter2"), "{error}"),
                Ok((bucket, prefix, at)) => {
                    assert!(!bucket.is_empty() && !bucket.contains(['@', ':', '/', '%']), "{bucket}");
                    assert!(prefix.is_empty() || crate::TreePath::parse(prefix).is_ok(), "{prefix}");
                    assert!(!shown(&at).contains(['@', '?']) || at.path().contains('@'), "{}", shown(&at));
                    let again = format!("s3://{bucket}/{prefix}");
                    assert!(place(&again, AWS).is_ok_and(|again| (again.0, again.1) == (bucket, prefix)));
                }
            }
        });
    }
}

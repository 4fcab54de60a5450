//! What the lab reads from outside: models of devices as they are spelt out, and recordings of other kernels.

use bowwave_fuzz::fuzz_text;
use bowwave_lab::{DeviceModel, JudgeRecord};

#[test]
fn a_model_prints_back_to_itself() {
    let corpus = [
        "hdd",
        "ssd,lat=1.5ms",
        "lat=8ms,bw=100MiB/s,head,fifo,skip",
        "lat=30ms,conn=90MB/s,slots=64,bw=1GB/s",
    ];
    fuzz_text("a model of a device", &corpus, |text| match text.parse::<DeviceModel>() {
        Ok(model) => assert_eq!(model.to_string().parse(), Ok(model), "{model}"),
        Err(error) => assert!(error.to_string().len() > 10),
    });
}

#[test]
fn a_record_of_the_judge_prints_back_to_itself() {
    let corpus =
        ["# bowwave judge 1\nkernel 6.18.44 max 32 pages 16384 request 320\npattern in order\nread 0 4096\n\
                   read 4096 65536 x 12 step -8192\norder 0 4 3\nunbounded 0 4 0\n"];
    fuzz_text("a record of the judge", &corpus, |text| {
        let Ok(record) = JudgeRecord::parse(text) else { return };
        if record.kernel.is_empty() {
            return; // a head alone
        }
        assert_eq!(JudgeRecord::parse(&record.to_text()), Ok(record));
    });
}

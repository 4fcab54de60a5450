//! What the lab reads from outside: models of devices as they are spelt out.

use bowwave_fuzz::fuzz_text;
use bowwave_lab::DeviceModel;

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

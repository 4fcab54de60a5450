//! What the lab reads from outside: models of devices as they are spelt out, and traces of five kinds.

use bowwave_fuzz::fuzz_text;
use bowwave_lab::{DeviceModel, TraceFormat, read_trace};

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
fn a_trace_of_any_kind_is_read_or_refused() {
    let corpus = [
        "7 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n7 read(3, \"x\\\"\"..., 4096) = 4096 <0.000012>\n7 lseek(3, 8192, SEEK_SET) = 8192\n\
         7 12:34:56.789 pread64(3, \"\"..., 4096, 65536) = 4096 <0.1>\n7 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3, 0) = 0x7f00\n\
         [pid 8] read(3, <unfinished ...>\n[pid 8] <... read resumed>\"\", 10) = 0\n7 close(3) = 0",
        "fio version 2 iolog\nfile add\nfile open\nfile read 8192 4096\nfile close",
        "8,0 3 1 0.000 697 Q R 2048 + 8 [cat]\n8,0 3 2 0.001 697 C R 2048 + 8 [0]",
        "# DXT, file_id: 1, file_name: /a\nX_POSIX 0 read 0 0 262144 0.1 0.2",
        "file,offset,length,thread\n/a,0,4096,1\n/a,4096,4096,1",
    ];
    fuzz_text("a trace", &corpus, |text| {
        for format in TraceFormat::NAMED.map(|(_, format)| Some(format)).into_iter().chain([None]) {
            let Ok(trace) = read_trace(text, format) else { continue };
            let sizes: Vec<u64> = trace.plan.files.iter().map(|file| file.size).collect();
            for op in &trace.plan.ops {
                assert!(op.offset + op.asked <= sizes[op.file as usize] && op.thread < trace.plan.threads);
            }
            assert!(!trace.plan.ops.is_empty() && (0.0..=1.0).contains(&trace.continued));
        }
    });
}

//! An explicit waste ceiling is absolute: it wins over speed, whatever a rule would buy.
//!
//! ```text
//! --waste 5: unread <= 128 KiB + 5 % of what was used, at every moment, gaps and regions included
//! ```

use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{DeviceModel, Fetcher, Params, Yardsticks, find, play};

#[test]
fn an_explicit_ceiling_holds_where_gaps_and_regions_would_pay() {
    let params = Params { volume: 0.1, ..Params::published() };
    let free = Config { memory: Bytes(1 << 30), request_max: PageCount(64), ..Config::default() };
    let bound = Config { waste_percent: 5, waste_absolute: true, ..free };
    for (device, model) in DeviceModel::NAMED {
        for name in ["seq_64k", "il32_1fd", "sparse_8k", "stride_4k_64k", "rnd_clu", "rnd_sparse"] {
            let plan =
                find(name).expect("a pattern of the catalogue").plan(&params).expect("published parameters");
            let useful = Yardsticks::of(&plan, &model).useful_bytes as f64;
            let fetched = play(&plan, &model, Fetcher::Wave(bound), false).fetched_bytes as f64;
            // One request may be sent when the last page of the allowance is still free.
            let most = 1.05 * useful + f64::from(128 * 1024) + f64::from(64 * 4096);
            println!("{device:>4} {name:<14} {:.3} bytes a byte", fetched / useful);
            assert!(fetched <= most, "{device} {name}: {:.3} bytes a byte", fetched / useful);
        }
    }
}

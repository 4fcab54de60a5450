//! What the agent is told: every read that it has not declared quiet, once, where it really starts.

use crate::program::Bench;

#[test]
fn every_call_that_reads_is_told_once_and_in_place() {
    Bench::new().tells("reads.c", &["plain"]);
}

#[test]
fn a_probe_of_the_end_is_no_read_and_nothing_is_told_past_the_end() {
    Bench::new().tells("reads.c", &["ends"]);
}

#[test]
fn duplicated_descriptors_share_a_position() {
    Bench::new().tells("reads.c", &["dups"]);
}

#[test]
fn forked_processes_share_a_position() {
    Bench::new().tells("reads.c", &["forks"]);
}

#[test]
fn a_vfork_child_moves_positions_but_closes_only_its_own_descriptors() {
    Bench::new().tells("reads.c", &["borrowed"]);
}

#[test]
fn copies_are_reads_of_their_input_and_bad_pointers_are_refused_by_the_kernel() {
    Bench::new().tells("reads.c", &["copies"]);
}

#[test]
fn a_file_opened_for_update_asks_where_it_is() {
    Bench::new().tells("reads.c", &["updates"]);
}

#[test]
fn errno_is_the_programs() {
    Bench::new().tells("reads.c", &["errnos"]);
}

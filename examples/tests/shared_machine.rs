//! The programs for a machine that is shared with other work.

use crate::{
    clients::example,
    common::{quota::is_limited, skip},
};

#[test]
fn an_api_answers_beside_a_compaction_and_both_are_reported() {
    let output = example("beside_compaction").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    let names: Vec<_> = lines.iter().map(|line| line.split(':').next()).collect();
    let expected = ["no compaction", "in the same group", "in its own group"];
    assert_eq!(names, expected.map(Some), "{lines:?}");
    // How long the answers took depends on the machine.
    assert!(
        lines[0].ends_with("; 0 million entries merged"),
        "{lines:?}"
    );
    for line in &lines[1..] {
        assert!(!line.ends_with("; 0 million entries merged"), "{lines:?}");
    }
}

#[test]
fn as_many_workers_take_part_as_the_limit_of_the_pod_pays_for() {
    if is_limited() {
        return skip("this process has a CPU quota already");
    }
    let output = example("resized_pod").output().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    if complaints.contains("no control group can be made") {
        return skip("no control group can be made");
    }
    assert!(output.status.success(), "{complaints}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let workers: Vec<_> = lines
        .lines()
        .map(|line| line.split(" workers").next().unwrap())
        .collect();
    let of = workers[0].rsplit(' ').next().unwrap();
    let most = of.parse::<usize>().unwrap().min(2);
    let expected = [("0.5", 1), ("2", most), ("1.5", most), ("1", 1)]
        .map(|(cores, active)| format!("{cores} cores: {active} of {of}"));
    assert_eq!(workers, expected, "{lines}");
}

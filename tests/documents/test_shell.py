"""Shell scripts: which commands run, with which words, in which line."""

import pytest

from vramwise.documents.shell import Shell
from vramwise.limits.meter import Meter, metered


def commands(text, *arguments, load=lambda _: None):
    meter = Meter()
    with metered(meter, "shell script"):
        shell = Shell(meter=meter, name="run.sh", arguments=list(arguments), load=load)
        return [one.words for one in shell.commands(text)], shell


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=x\nrun \"$A\" ${A} '$A' ${B:-y} ${A:+z} ${C:+z}", ["run", "x", "x", "$A", "y", "z"]),
        ("A='1 2'\nrun $A \"$A\"", ["run", "1", "2", "1 2"]),
        ('A=(--x 1)\nA+=(--y "2 3")\nrun "${A[@]}" ${#A[@]} ${A[1]}', ["run", "--x", "1", "--y", "2 3", "4", "1"]),
        ("N=2\nrun $((16 / N)) `expr 16 / $N` $(basename a/b.py .py)", ["run", "8", "8", "b"]),
        ("A=a/b-c.py\nrun ${A##*/} ${A%.py} ${A//-/_}", ["run", "b-c.py", "a/b-c", "a/b_c.py"]),
        ("run --a 1 \\\n  --b 2 # more\n", ["run", "--a", "1", "--b", "2"]),
        ("run 'a\nb' 2>&1 > log.txt &", ["run", "a\nb"]),
        ('A="--n $(date +%s) b"\nrun $UNSET $A $1', ["run", "$UNSET", "--n", "$(date)", "b", "$1"]),
        ("X='run --a'\neval $X --b 1", ["run", "--a", "--b", "1"]),
        ('bash -c "exec run $HOME"', ["exec", "run", "$HOME"]),
        ('f() { run "$@" --z $1; }\nf 1 2', ["run", "1", "2", "--z", "1"]),
        ("V=0,1,2\nrun $(echo $V | tr ',' '\\n' | wc -l)", ["run", "3"]),
        ("A=1 run", ["A=1", "run"]),
        ("run don't stop", ["run", "don't", "stop"]),
    ],
)
def test_words_are_expanded(text, words):
    assert commands(text)[0] == [words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('if [ -z "$A" ]; then A=1; else A=2; fi\nrun $A', ["run", "1"]),
        ("A=1\nif [ $A -gt 3 ]; then B=x; elif [[ $A == 1 ]]; then B=y; fi\nrun $B", ["run", "y"]),
        ("A=1\nif [ -f x ]; then A=2; fi\nrun $A", ["run", "1"]),
        ('A=${1:-5}\nif [ "$#" -ne 1 ]; then echo usage; exit 1; fi\nrun $A', ["run", "5"]),
        ("for a in 1 2 3; do run $a; done", ["run", "1"]),
        ("while [[ $# -gt 0 ]]; do case $1 in -x) X=1;; esac; shift; done\nrun $X", ["run", "$X"]),
        ('while (( $# )); do case "$1" in --x) X=$2; shift 2;; *) shift;; esac; done\nrun $X', ["run", "$X"]),
        ("N=3\nif (( N > 2 )); then run 1; fi\nif ((N - 3)); then run 2; fi", ["run", "1"]),
        ("A=b\ncase $A in a|c) run a;; b) run b;; *) run c;; esac", ["run", "b"]),
        ("false && run 1\nfalse || run 2\nexit 0\nrun 3", ["run", "2"]),
        ("cd sub && (run)", ["run"]),
    ],
)
def test_branches_that_are_decided_are_followed(text, words):
    assert commands(text)[0] == [words]


def test_a_value_from_before_an_unknown_branch_is_kept_and_both_branches_run():
    found, _ = commands("A=1\nif [ -d x ]; then A=2; run a; else run b; fi\nrun $A")
    assert found == [["run", "a"], ["run", "b"], ["run", "1"]]


def test_arguments_reach_the_script_and_what_it_calls():
    found, _ = commands("bash other.sh $1 --more", "7", load=lambda name: "run $1 $2" if name == "other.sh" else None)
    assert found == [["run", "7", "--more"]]


def test_heredocs_write_files():
    _, shell = commands("N=4\ncat > a.yaml <<EOF\nn: $N\nEOF\ncat <<'X' > b.yaml\nn: $N\nX\ntee c.yaml <<E\nz\nE\n")
    assert shell.files == {"a.yaml": "n: 4\n", "b.yaml": "n: $N\n", "c.yaml": "z\n"}


def test_a_job_file_says_how_many_cards():
    found, _ = commands("#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4\nrun $((SLURM_NNODES * SLURM_GPUS_ON_NODE))\n")
    assert found == [["run", "8"]]


def test_a_loop_is_said():
    meter = Meter()
    with metered(meter, "shell script"):
        (found,) = Shell(meter=meter).commands("for lr in 1e-4 1e-5; do run $lr; done")
    assert found.notes == ("lr = 1e-4, the first of 2 in the loop of line 1",)


def test_the_arguments_of_a_script_are_taken_one_by_one():
    text = 'while [[ $# -gt 0 ]]; do case "$1" in --x) X="$2"; shift 2;; --y) Y=1; shift;; esac; done\nrun $X ${Y:-0} ${Z:-3}'
    assert commands(text, "--x", "7", "--y")[0] == [["run", "7", "1", "3"]]

"""Lengths from the data itself: formats, tokenizers, bounds, and files that mean harm."""

import json
import os

import pytest

from installed import need
from vramwise.errors import VramwiseError
from vramwise.limits import Budget, ceilings
from vramwise.opening.data.reading import read_blocks, read_named
from vramwise.opening.data.samples import samples_of
from vramwise.opening.data.tokens import count_tokens
from vramwise.trainers.base import DatasetBlock

TEXT = "word " * 300


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT, "id": "x" * 5000},
        {"messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": ""}]},
        {"conversations": [{"from": "human", "value": TEXT}]},
        {"conversations": [{"from": "human", "value": [{"type": "text", "text": TEXT}]}], "source": "y" * 5000},
        {"instruction": TEXT[:750], "input": "", "output": TEXT[750:], "category": "z" * 5000},
        {"prompt": TEXT[:500], "completion": TEXT[500:]},
        {"question": TEXT[:500], "answer": TEXT[500:], "url": "u" * 5000},
    ],
    ids=lambda row: next(iter(row)),
)
def test_the_texts_of_common_formats_count_and_nothing_beside_them(row):
    (sample,) = samples_of(row)
    assert len(sample.text) == len(TEXT)
    assert 0 < sample.extra < 64


def test_a_row_that_compares_answers_is_two_samples():
    chosen, rejected = samples_of({"prompt": "p" * 10, "chosen": "c" * 30, "rejected": "r" * 20})
    assert (len(chosen.text), len(rejected.text)) == (40, 30)
    whole = [{"role": "user", "content": "p" * 10}, {"role": "assistant", "content": "c" * 30}]
    chosen, _ = samples_of({"prompt": "p" * 10, "chosen": whole, "rejected": whole})
    assert len(chosen.text) == 40, "a whole conversation holds its prompt already"


def test_columns_that_the_config_names_win():
    (sample,) = samples_of({"text": "short", "body_text": TEXT}, columns=("body_text",))
    assert sample.text == TEXT.encode()


def test_lengths_that_rows_state_are_taken_as_they_are(tmp_path):
    path = written(tmp_path / "d.jsonl", [{"input_ids": [1] * 77}, {"length": 12}])
    lengths = read_named(str(path))
    assert lengths.tokens == [77, 12]
    assert "as given in the rows" in lengths.described


def test_without_a_tokenizer_lengths_are_estimated_and_that_is_said(tmp_path):
    lengths = read_named(str(written(tmp_path / "d.jsonl", [{"text": "a" * 300}] * 3)))
    assert lengths.tokens == [102] * 3
    assert "estimated at 3 bytes per token" in lengths.described


def test_the_models_own_tokenizer_counts_where_it_lies_beside_the_model(tmp_path):
    need("tokenizers")
    import tokenizers

    vocabulary = {"[UNK]": 0, "word": 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = written(tmp_path / "d.jsonl", [{"text": "word " * count} for count in (10, 200, 3000)])
    lengths = read_named(str(path), tmp_path)
    assert lengths.tokens == [12, 202, 3002]
    assert "the model's tokenizer" in lengths.described


def test_the_longest_rows_are_counted_and_the_others_in_their_ratio():
    counted = []

    def counter(texts):
        counted.extend(texts)
        return [len(text) // 5 for text in texts]

    samples = [sample for count in range(1, 5000) for sample in samples_of({"text": "x" * (5 * count)})]
    lengths = count_tokens(samples, counter)
    assert len(counted) < 400
    assert lengths[-1] == 4999 + 2
    assert abs(lengths[2000] - 2003) <= 1


@pytest.mark.parametrize("broken", ["{", "[]", "\x00\x01"])
def test_a_tokenizer_that_cannot_be_read_is_none(tmp_path, broken):
    (tmp_path / "tokenizer.json").write_text(broken)
    lengths = read_named(str(written(tmp_path / "d.jsonl", [{"text": "abc"}])), tmp_path)
    assert "estimated" in lengths.described


def test_a_folder_a_list_and_a_table(tmp_path):
    (tmp_path / "part").mkdir()
    written(tmp_path / "part" / "a.jsonl", [{"text": "a" * 30}])
    (tmp_path / "b.json").write_text("\ufeff" + json.dumps([{"text": "b" * 60}]))
    (tmp_path / "c.csv").write_text("text,id\n" + "c" * 90 + ",1\n")
    (tmp_path / "README.md").write_text("not data")
    assert sorted(read_named(str(tmp_path)).tokens) == [12, 22, 32]


def test_parquet_with_pyarrow_and_a_sentence_without(tmp_path, monkeypatch):
    need("pyarrow")
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table({"text": ["a" * 30, "b" * 60]}), path)
    assert read_named(str(path)).tokens == [12, 22]
    path.write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(VramwiseError, match="as Parquet"):
        read_named(str(path))
    path.write_bytes(b"PAR1 something else PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(VramwiseError, match="pip install pyarrow"):
        read_named(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{broken", "not JSON"),
        (b"[1, 2]", "a row must be a JSON object"),
        (b"3\n", "a row must be a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' * 100_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b"", "contains no text"),
        (b'{"score": 3}\n', "contains no text"),
    ],
)
def test_bad_data_is_one_sentence(tmp_path, content, said):
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(VramwiseError, match=said):
        read_named(str(path))


def test_deep_rows_do_not_end_the_program(tmp_path):
    row = "a"
    for _ in range(400):
        row = [row]
    path = written(tmp_path / "d.jsonl", [{"text": "abc"}, {"deep": row}])
    assert read_named(str(path)).tokens == [3]


def test_what_is_no_file_of_rows_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(VramwiseError, match="not a regular file"):
        read_named(str(tmp_path / "pipe.jsonl"))
    for name, said in (
        ("none.jsonl", "does not exist"),
        ("a\0b", "not the path|does not exist"),
        ("x" * 5000, "not the path|does not exist"),
    ):
        with pytest.raises(VramwiseError, match=said):
            read_named(str(tmp_path / name) if "\0" not in name else name)
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(VramwiseError, match="must end in"):
        read_named(str(tmp_path / "model.bin"))


def test_a_large_file_is_read_in_part_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Budget.__init__, "__defaults__", (5000, 200_000, 10**6, 10**9))
    path = written(tmp_path / "d.jsonl", [{"text": "a" * 90}] * 1000)
    lengths = read_named(str(path))
    assert 10 < len(lengths.tokens) < 100
    assert any("later rows may be longer" in note for note in lengths.assumptions)


def test_local_files_that_a_config_names_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    written(tmp_path / "here.jsonl", [{"text": "a" * 30}])
    written(tmp_path / "configs" / "beside.jsonl", [{"text": "b" * 60}])
    here, beside = DatasetBlock(path="here.jsonl"), DatasetBlock(path="json", files=("beside.jsonl",))
    data = read_blocks([here, beside], tmp_path / "configs")
    assert data.train.tokens == [12, 22]
    hub = DatasetBlock(path="tatsu-lab/alpaca")
    assert read_blocks([here, hub], tmp_path).train is None, "rows of the hub may be longer"
    held_out = DatasetBlock(path="here.jsonl", evaluation=True)
    assert read_blocks([beside, held_out], tmp_path / "configs").evaluation.tokens == [12]


def test_data_of_a_config_that_cannot_be_read_is_a_note(tmp_path):
    (tmp_path / "bad.jsonl").write_text("{")
    data = read_blocks([DatasetBlock(path="bad.jsonl")], tmp_path)
    assert data.train is None
    assert "not read" in data.notes[0]


TALK = [
    {"role": "user", "content": "q" * 60},
    {"role": "assistant", "content": "a" * 60},
    {"role": "user", "content": "r" * 120},
    {"role": "assistant", "content": "b" * 60},
]
SHARE = [{"from": "human", "value": "q" * 200}, {"from": "gpt", "value": "a" * 100}]


@pytest.mark.parametrize(
    ("row", "shares"),
    [
        # what is trained on of the text, in three hundredths of it: completions, answers, the last answer
        ({"messages": TALK}, (None, 120, 60)),
        ({"conversations": SHARE}, (None, 100, 100)),
        ({"instruction": "i" * 250, "output": "o" * 50}, (None, 50, 50)),
        ({"prompt": "p" * 100, "completion": "c" * 200}, (200, 200, 200)),
        ({"prompt": TALK[:3], "completion": TALK[3:]}, (60, 60, 60)),
        ({"prompt": "p" * 240, "chosen": "c" * 60, "rejected": "r"}, (60, 60, 60)),
    ],
)
def test_answers_have_their_share_of_the_tokens(tmp_path, row, shares):
    found = read_named(str(written(tmp_path / "data.jsonl", [row])))
    (tokens,) = found.tokens
    plain = 300 / 3  # three bytes a token
    for name, share in zip(("completions", "answers", "last_answer"), shares, strict=True):
        (counted,) = found.labelled_by[name]
        if share is None:
            assert counted == tokens  # no prompt stands apart: all is trained on
        else:
            assert counted == pytest.approx(plain * share / 300, abs=5)


def test_rows_that_say_their_labels_are_taken_at_their_word(tmp_path):
    rows = [
        {"input_ids": [5] * 10, "labels": [-100] * 6 + [5] * 4},
        {"input_ids": [5] * 10, "completion_mask": [0] * 7 + [1] * 3},
        {"input_ids": [5] * 10},
    ]
    found = read_named(str(written(tmp_path / "data.jsonl", rows)))
    assert found.labelled_by == {name: [4, 3, 10] for name in ("all", "completions", "answers", "last_answer")}
    assert read_named(str(written(tmp_path / "plain.jsonl", [{"text": TEXT}]))).labelled_by is None


def bounded(monkeypatch, **bounds):
    """Smaller bounds, so that small files are past them."""
    values = {"size_bytes": 10**6, "rows": 10**6, "lines": 10**6, "values_bytes": 10**9, **bounds}
    monkeypatch.setattr(Budget.__init__, "__defaults__", tuple(values.values()))


def test_blank_lines_count(tmp_path, monkeypatch):
    bounded(monkeypatch, lines=100)
    row = json.dumps({"text": "a" * 30}).encode() + b"\n"
    for name, head in (("d.jsonl", row), ("d.csv", b"text\n" + b"a" * 30 + b"\n")):
        (tmp_path / name).write_bytes(head + b"\n" * 500 + head)
        lengths = read_named(str(tmp_path / name))
        assert lengths.tokens == [12]
        assert not lengths.whole
        assert "lines of" in lengths.unread[0]
    (tmp_path / "blank.jsonl").write_bytes(b"\n" * 500)
    with pytest.raises(VramwiseError, match="lines contain no text"):
        read_named(str(tmp_path / "blank.jsonl"))


def test_a_row_that_would_take_too_much_memory_is_left_out_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(ceilings, "MEMORY_BYTES", 100_000)
    path = written(tmp_path / "d.jsonl", [{"text": "a" * 30}, {"messages": [1] * 5000}, {"text": "b" * 60}])
    lengths = read_named(str(path))
    assert lengths.tokens == [12, 22]
    assert "1 rows" in lengths.unread[0]
    (tmp_path / "list.json").write_text(json.dumps([{"messages": [1] * 5000}]))
    with pytest.raises(VramwiseError, match=r"single list, and its values would take .* save one row per line"):
        read_named(str(tmp_path / "list.json"))


def test_values_of_all_rows_together_are_bounded(tmp_path, monkeypatch):
    bounded(monkeypatch, values_bytes=100_000)
    lengths = read_named(str(written(tmp_path / "d.jsonl", [{"input_ids": [7] * 100}] * 1000)))
    assert 5 < len(lengths.tokens) < 100
    assert "of values" in lengths.unread[0]


def test_a_csv_row_costs_the_cells_that_it_has(tmp_path, monkeypatch):
    names = [f"c{number}" for number in range(30_000)]
    (tmp_path / "d.csv").write_text(",".join(names) + "\n" + "aaa,bbb\n" * 2000)
    assert len(read_named(str(tmp_path / "d.csv")).tokens) == 2000
    bounded(monkeypatch, values_bytes=128 * 5000)
    (tmp_path / "e.csv").write_text("text\n" + "a\n" * 10 + "," * 100_000 + "\n")
    lengths = read_named(str(tmp_path / "e.csv"))
    assert len(lengths.tokens) == 10
    assert not lengths.whole


def test_a_csv_row_longer_than_its_header_keeps_what_is_beyond(tmp_path):
    (tmp_path / "d.csv").write_text("other\naaa,bbbbbb\n")
    assert read_named(str(tmp_path / "d.csv")).tokens == [5]


def nulls(path, count):
    """One row that is a list of so many nulls: some hundred bytes."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    column = pyarrow.ListArray.from_arrays(pyarrow.array([0, count], pyarrow.int32()), pyarrow.nulls(count))
    parquet.write_table(pyarrow.table({"messages": column}), path)


def test_a_parquet_file_that_decodes_to_too_much_ends_its_own_process(tmp_path):
    nulls(tmp_path / "d.parquet", 120_000_000)
    assert (tmp_path / "d.parquet").stat().st_size < 2000
    with pytest.raises(
        VramwiseError, match=r"more than 640 MiB of memory or 5 s: save the rows as jsonl|contain no text"
    ):
        read_named(str(tmp_path / "d.parquet"))


def test_parquet_rows_are_what_jsonl_rows_are(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"messages": TALK, "picture": b"\xff" * 50, "n": number} for number in range(600)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    written(tmp_path / "d.jsonl", [{"messages": TALK, "n": number} for number in range(600)])
    one, other = (read_named(str(tmp_path / name)) for name in ("d.parquet", "d.jsonl"))
    assert one.tokens == other.tokens
    assert one.labelled_by == other.labelled_by


def test_what_could_not_be_read_is_read_once(tmp_path, monkeypatch):
    from vramwise.opening.data import reading

    read = []
    monkeypatch.setattr(reading, "read_rows", lambda *_: read.append(1) or iter(()))
    path = written(tmp_path / "once.jsonl", [{"score": 1}])
    for _ in range(3):
        with pytest.raises(VramwiseError, match="contains no text"):
            read_named(str(path))
    assert read == [1]


def test_check_says_what_of_the_data_it_did_not_read(tmp_path, vramwise):
    (tmp_path / "blank.jsonl").write_bytes(b"{" * 100)
    config = tmp_path / "c.yaml"
    lines = ["base_model: NousResearch/Meta-Llama-3-8B", "adapter: lora", "sequence_len: 512", "micro_batch_size: 1"]
    config.write_text("\n".join([*lines, f"datasets: [{{path: {tmp_path / 'blank.jsonl'}, type: chat_template}}]\n"]))
    result = vramwise("check", config, "--gpu", "h100")
    assert "note: cannot read the data: " in result.stderr
    assert "Traceback" not in result.output

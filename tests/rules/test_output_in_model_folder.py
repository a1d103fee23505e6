"""output_dir against the base model's folder, as written: every spelling of the same folder, and names of the hub."""

import pytest

IS, CONTAINS, INSIDE = "is the folder of the base model", "contains the base model", "is inside the folder"


def said(vramwise, tmp_path, base, output, trainer="axolotl"):
    key = "base_model" if trainer == "axolotl" else "model_name_or_path"
    more = "micro_batch_size: 2\n" if trainer == "axolotl" else "dataset_name: a/b\nmax_length: 64\n"
    path = tmp_path / "sft.yml"
    path.write_text(f"{key}: '{base}'\noutput_dir: '{output}'\nlearning_rate: 0.0002\n{more}")
    options = ("--trainer", "trl:sft") if trainer == "trl" else ()
    return vramwise("check", path, "--select", "output-in-model-folder", *options).output


@pytest.mark.parametrize(
    ("base", "output", "relation"),
    [
        ("./m", "m", IS),
        ("m/", "./m", IS),
        ("/data/m", "/data/x/../m", IS),
        ("~/m", "~/m//", IS),
        ("owner/name", "./owner/name", IS),  # a hub id: with the output there, the next run takes that for the base
        (".\\\\m", "m", IS),
        ("./out/checkpoint-100", "./out", CONTAINS),
        ("./m", ".", CONTAINS),
        ("/data/m", "/", CONTAINS),
        ("./m", "m/out", INSIDE),
        ("/data/m", "/data/m/lora/out", INSIDE),
    ],
)
@pytest.mark.parametrize("trainer", ["axolotl", "trl"])
def test_related_folders(vramwise, tmp_path, base, output, relation, trainer):
    found = said(vramwise, tmp_path, base, output, trainer)
    assert relation in " ".join(found.split())
    assert ":2:" in found


@pytest.mark.parametrize(
    ("base", "output"),
    [
        ("./m", "./m2"),
        ("./m/base", "./m/out"),
        ("owner/name", "./owner"),  # of the hub: nothing is in that folder
        ("owner/name", "./owner/name-lora"),
        ("owner/name", "."),
        ("/data/m", "."),
        ("~/m", "."),
        ("./m", "/"),
        ("./m", ""),
        ("./m", "~"),
    ],
)
def test_unrelated_folders(vramwise, tmp_path, base, output):
    assert "output-in-model-folder" not in said(vramwise, tmp_path, base, output)


@pytest.mark.parametrize("value", ["3", "[a]", "{a: 1}", "null", "true"])
def test_values_that_are_no_path(vramwise, tmp_path, value):
    path = tmp_path / "c.yml"
    path.write_text(f"base_model: ./m\noutput_dir: {value}\nmicro_batch_size: 2\n")
    assert "output-in-model-folder" not in vramwise("check", path, "--select", "output-in-model-folder").output

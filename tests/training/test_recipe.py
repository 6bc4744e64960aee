"""Recipes: the papers' numbers, overrides, and what is refused."""

import json
from pathlib import Path

import pytest

from favor.data.names import SETS
from favor.errors import RequestError
from favor.records.schema import CardFields, Record, from_data, to_data
from favor.trace.optimizer import OPTIMIZERS
from favor.training.recipe import KEYS, Recipe, load_recipe, parse_override, pipeline_of, recipe_names

TABLE_3 = {
    "batch_size": 2048,
    "optimizer": "lamb",
    "eps": 1e-7,
    "weight_decay": 0.02,
    "schedule": "cosine",
    "min_lr": 1e-5,
    "warmup_epochs": 5,
    "warmup_lr": 1e-6,
    "clip_grad": 1.0,
    "label_smoothing": 0.1,
    "drop_path": 0.05,
    "precision": "amp",
    "flip": 0.5,
    "color_jitter": 0.3,
    "cutmix": 1.0,
    "img_size": 224,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}


def test_the_named_recipes_are_those_of_the_papers_two_for_laptops_and_one_for_own_images() -> None:
    assert set(recipe_names()) == {
        *("deit3-pretrain", "deit3-finetune", "cars", "flowers", "places"),
        *("vix-cifar10", "vix-tiny-imagenet", "laptop-cifar10", "laptop-digits", "transfer"),
    }


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_names_itself_a_known_data_set_and_its_command(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.data in SETS
    assert f"--recipe {name}" in recipe.doc
    assert recipe.optimizer in OPTIMIZERS


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("deit3-pretrain", {"epochs": 90, "lr": 3e-3, "data": "imagenet-21k"}),
        ("deit3-finetune", {"epochs": 50, "lr": 3e-4, "data": "imagenet-1k"}),
        ("cars", {"epochs": 2000, "lr": 3e-4, "batch_size": 1024}),
        ("flowers", {"epochs": 2000, "lr": 3e-4, "batch_size": 256}),
        ("places", {"epochs": 50, "lr": 3e-4, "batch_size": 2048}),
    ],
)
def test_the_benchmark_recipes_are_tables_3_and_4(name: str, changed: dict[str, object]) -> None:
    recipe = load_recipe(name)
    assert {key: getattr(recipe, key) for key in TABLE_3 | changed} == TABLE_3 | changed
    assert recipe.grey == recipe.solarize == recipe.blur == pytest.approx(1 / 3)


@pytest.mark.parametrize(("name", "img_size"), [("vix-cifar10", 32), ("vix-tiny-imagenet", 64)])
def test_the_x_former_recipes_are_section_4(name: str, img_size: int) -> None:
    recipe = load_recipe(name)
    told = (recipe.optimizer, recipe.lr, recipe.beta1, recipe.beta2, recipe.eps, recipe.weight_decay)
    assert told == ("adam", 1e-3, 0.9, 0.999, 1e-8, 0.01)
    assert (recipe.batch_size, recipe.precision, recipe.img_size) == (64, "amp", img_size)


def test_an_override_replaces_one_value_and_nothing_else() -> None:
    plain, changed = load_recipe("deit3-pretrain"), load_recipe("deit3-pretrain", ["img_size=192", "lr=1e-3"])
    assert changed == plain.model_copy(update={"img_size": 192, "lr": 1e-3})


OWN = "name: mine\nversion: 1\ndoc: x\ndata: digits\nimg_size: 32\nepochs: 2\nbatch_size: 8\noptimizer: adam\nlr: 0.1\n"


def test_the_pipeline_of_a_recipe_file_tells_what_is_changed_and_is_another_one_for_an_edited_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"

    def pipeline(text: str, *changes: str) -> str:
        file.write_text(text)
        return pipeline_of(load_recipe(str(file), changes), source=str(file))

    plain = pipeline(OWN)
    assert plain.startswith("mine@1:")
    assert " " not in plain
    assert pipeline(OWN, "lr=0.2", "seed=3", "img_size=64") == f"{plain} lr=0.2"
    assert pipeline(OWN.replace("doc: x", "doc: y # better") + "weight_decay: 0.0\n") == plain, "it trains the same"
    edited = pipeline(OWN.replace("lr: 0.1", "lr: 0.2"))
    assert edited not in (plain, f"{plain} lr=0.2")
    assert edited.startswith("mine@1:")
    # A file may have the name of a built-in recipe.
    assert pipeline(OWN.replace("mine", "laptop-digits")).startswith("laptop-digits@1:")


def test_clipping_can_be_switched_off_with_null() -> None:
    assert load_recipe("cars", ["clip_grad=null"]).clip_grad is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rate=1", "unknown key of a recipe 'learning_rate'"),
        ("warmup_epoch=1", "did you mean 'warmup_epochs'"),
        ("epochs", "write key=value"),
        ("=3", "write key=value"),
        ("name=mine", "cannot be set"),
        ("lr=[", "--set lr:1: not YAML"),
        ("data=2020-13-45", "--set data:1: '2020-13-45' would be read as a date"),
        ("lr=-1", "lr: Input should be greater than 0, not -1"),
        ("lr=nan", "lr: "),
        ("flip=nan", "flip: Input should be a finite number, not nan"),
        ("drop_path=nan", "drop_path: Input should be a finite number"),
        ("mean=[0.5, .nan, 0.5]", "mean[1]: Input should be a finite number"),
        ("lr=fast", "lr: Input should be a valid number, not 'fast'"),
        ("epochs=1.5", "epochs: "),
        ("epochs=true", "epochs: "),
        ("drop_path=1", "drop_path: Input should be less than 1"),
        ("cutmix=1.01", "cutmix: "),
        ("optimizer=adan", "optimizer: Input should be 'adam', 'adamw', 'lamb' or 'sgd'"),
        ("grey=0.9", "their sum is at most 1"),
        ("min_lr=1", "above the peak"),
        ("warmup_lr=1", "above the peak"),
        ("warmup_epochs=90", "leave nothing"),
        (
            "epochs=5",
            "warmup_epochs 5 leave nothing of epochs 5; set warmup_epochs lower, for example --set warmup_epochs=0",
        ),
        ("mean=[0.5, 0.5]", "mean"),
    ],
)
def test_a_wrong_override_is_refused_with_one_line_that_names_it(override: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_recipe("deit3-pretrain", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_recipe_is_answered_with_the_closest() -> None:
    with pytest.raises(RequestError, match="did you mean 'deit3-pretrain'"):
        load_recipe("deit3_pretrain")


def test_a_file_of_ones_own_is_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nversion: 1\ndoc: try\ndata: digits\nimg_size: 32\n"
        "epochs: 2\nbatch_size: 8\noptimizer: sgd\nlr: 1e-1\n"
    )
    assert load_recipe(str(file)).lr == 0.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine\nlerning_rate: 1\n", r"mine.yaml:2: lerning_rate: unknown key of a recipe"),
        ("- a\n- b\n", "not a list"),
        ("name: [", "mine.yaml:1: not YAML"),
        ("name: mine\nname: mine\n", "mine.yaml:2: duplicate key 'name'"),
        ("name: &a [b]\ndoc: *a\n", "mine.yaml:2: aliases such as"),
        ("!!python/object/apply:os.getcwd []\n", "mine.yaml:1: tags such as"),
        ("name: mine\n", "mine.yaml:1: version: Field required"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(RequestError, match=message):
        load_recipe(str(file))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(RequestError, match="not a text file in UTF-8"):
        load_recipe(str(file))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file"):
        load_recipe(str(tmp_path / "none.yaml"))


def test_a_recipe_cannot_be_changed_after_it_was_checked() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_recipe("cars").lr = 1.0  # type: ignore[misc]


def test_the_flat_recipe_is_what_a_record_can_carry_and_tells_every_value_but_the_text() -> None:
    recipe = load_recipe("deit3-pretrain")
    flat = recipe.flat()
    record = Record("vit_s16", CardFields(), "accuracy", "measured", conditions=flat, time=None)
    assert from_data(json.loads(json.dumps(to_data(record)))).conditions == flat
    assert flat["recipe.lr"] == 3e-3
    assert flat["recipe.mean"] == "0.485 0.456 0.406"
    assert flat.keys() == {f"recipe.{key}" for key in KEYS} - {
        *("recipe.doc", "recipe.interpolation", "recipe.layer_decay", "recipe.patience")
    }, "null is the default, and not told"


def test_two_recipes_that_differ_have_different_flat_forms() -> None:
    changes = {"lr": 2e-3, "seed": 1, "cutmix": 0.5, "clip_grad": None, "std": (0.5, 0.5, 0.5)}
    plain = load_recipe("deit3-pretrain")
    for key, value in changes.items():
        assert Recipe.model_validate(plain.model_dump() | {key: value}).flat() != plain.flat(), key


def test_numbers_are_written_as_people_write_them() -> None:
    assert parse_override("lr=3e-4") == ("lr", 3e-4)
    assert parse_override("mean=[1e-1, 0.5, 1]") == ("mean", (0.1, 0.5, 1))

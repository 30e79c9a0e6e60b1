"""The finding of a fit in a few plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["verdict", "verdict_of_values"]

# Distances up to this many times what chance gives are no difference of the domains.
ALIKE = 1.5
# A loss of this much source accuracy, or of explained variance, is worth a word.
COSTLY = 0.05
# Mean predictions that alignment moves by this part of a deviation are worth a word.
MOVED = 0.2
INTERRUPTED = "Training was interrupted; this is the model of the networks that were finished."


def verdict(summary: Mapping[str, Any]) -> str:
    """Return what was found in a few plain sentences."""
    last, plain = summary["rows"][-1], next((row for row in summary["rows"] if row["weight"] == 0.0), None)
    sentences = [_alignment(summary["distance"], adapted=any(row["weight"] for row in summary["rows"]))]
    if summary["plain_kept"]:
        sentences = [_kept(summary["rows"])]
    held_out = f"The model gets {100 * last['source_accuracy']:.1f} % of held-out source rows right"
    if plain is not None and plain["source_accuracy"] - last["source_accuracy"] > COSTLY:
        held_out += f", the plain network {100 * plain['source_accuracy']:.1f} %: alignment costs something here"
    sentences.append(f"{held_out}.")
    used = [share["class"] for share in summary["shares"] if share["target"]]
    if len(used) == 1:
        sentences.append(f"It predicts {used[0]!r} for every target row; check the target before you rely on it.")
    if summary["evaluation"] is not None:
        beside = "" if plain is None else f", the plain network {100 * plain['target_accuracy']:.1f} %"
        sentences.append(f"On the target it gets {100 * last['target_accuracy']:.1f} % right{beside}.")
    if summary["interrupted"]:
        sentences.append(INTERRUPTED)
    return " ".join(sentences)


def verdict_of_values(summary: Mapping[str, Any], *, weight: float) -> str:
    """Return what was found where labels are numbers, and which weight predicts, in a few plain sentences."""
    last, plain = summary["rows"][-1], next((row for row in summary["rows"] if row["weight"] == 0.0), None)
    sentences = [_alignment(summary["distance"], adapted=any(row["weight"] for row in summary["rows"]))]
    if weight:
        paper = ", the paper's default" if weight == 1.0 else ""
        sentences.append(f"The weight is {weight:g}{paper}: numbers have no label-free score here to choose it by.")
    else:
        plain = None  # It is what predicts, there is nothing to compare.
    held_out = f"R² is {_explained(last['source_r2'])} on held-out source rows"
    if plain is not None and (plain["source_r2"] or 0.0) - (last["source_r2"] or 0.0) > COSTLY:
        held_out += f", {_explained(plain['source_r2'])} without alignment, which costs something here"
    sentences.append(f"{held_out}.")
    if plain is not None:
        sentences += _moved(summary["values"])
    if summary["evaluation"] is not None:
        beside = "" if plain is None else f", {_explained(plain['target_r2'])} without alignment"
        sentences.append(f"On the target R² is {_explained(last['target_r2'])}{beside}.")
    if summary["interrupted"]:
        sentences.append(INTERRUPTED)
    return " ".join(sentences)


def _explained(part: float | None) -> str:
    return "not defined" if part is None else f"{part:.2f}"


def _moved(values: Mapping[str, Any]) -> list[str]:
    """The one thing that no label-free figure can tell: whether the numbers of the target are different ones."""
    source, plain, aligned = values["source"], values["plain"]["mean"], values["target"]["mean"]
    if abs(plain - aligned) <= MOVED * source["deviation"]:
        return []
    word = "larger" if plain > aligned else "smaller"
    return [
        f"The predictions for the target have a mean of {aligned:.4g}, without alignment {plain:.4g}, the source's "
        f"numbers {source['mean']:.4g}: if those of the target really are {word}, fit with method none."
    ]


def _kept(rows: Sequence[Mapping[str, Any]]) -> str:
    plain = next(row["score"] for row in rows if row["weight"] == 0.0)
    adapted = max(row["score"] for row in rows if row["weight"])
    return (
        f"Alignment was left out: without it the predictions for the target are surer and use the classes more evenly "
        f"(label-free score {plain:.2f}, with it at most {adapted:.2f}), as where classes have other shares in the "
        "target."
    )


def _alignment(distance: Mapping[str, Any], *, adapted: bool) -> str:
    after, chance = sum(distance["after"]), distance["by_chance"]
    if distance["before"] is None:
        return f"The hidden activations of the domains are {after:.2f} apart (CMD)."
    before = sum(distance["before"])
    if before <= ALIKE * chance:
        return f"The domains look alike to the plain network: {before:.2f} apart (CMD), {chance:.2f} by chance alone."
    if not adapted:
        return (
            f"The hidden activations of the domains are {before:.2f} apart (CMD), {chance:.2f} by chance alone; they "
            "were not aligned."
        )
    verb = "brings" if after < before else "does not bring"
    return (
        f"Alignment {verb} the hidden activations of the domains together: {before:.2f} apart (CMD) before, "
        f"{after:.2f} after, {chance:.2f} by chance alone."
    )

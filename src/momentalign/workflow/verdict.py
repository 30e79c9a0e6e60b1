"""The finding of a fit in a few plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["verdict"]

# Distances up to this many times what chance gives are no difference of the domains.
ALIKE = 1.5
# A loss of this much source accuracy is worth a word.
COSTLY = 0.05


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
        sentences.append("Training was interrupted; this is the model of the networks that were finished.")
    return " ".join(sentences)


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

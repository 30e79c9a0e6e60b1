"""
A text classifier moved to a new product category
=================================================

Opinions on books are labelled, opinions on kitchenware are not. Some words praise everything (*great*), some only
one of them (*gripping*, *sharp*). The texts here are generated, so that the example needs no file; on real reviews
the same steps give `momentalign reproduce sentiment <../paper.html>`_.
"""

import matplotlib.pyplot as plt
import numpy as np

import momentalign as ma

# %%
# Texts
# -----

SHARED = {
    "good": ["great", "excellent", "wonderful", "love", "recommend"],
    "bad": ["poor", "awful", "disappointed", "waste", "boring"],
}
OWN = {
    "books": {
        "good": ["gripping", "moving", "witty", "masterful", "vivid"],
        "bad": ["tedious", "shallow", "predictable", "dull", "clumsy"],
    },
    "kitchen": {
        "good": ["sharp", "sturdy", "durable", "quiet", "handy"],
        "bad": ["rusty", "leaking", "flimsy", "noisy", "broken"],
    },
}
FILLERS = {
    "books": ["story", "author", "chapter", "plot", "reader", "page", "character", "novel"],
    "kitchen": ["knife", "pan", "handle", "kettle", "blade", "lid", "oven", "toaster"],
}


def write(random, category, opinion):
    """Write a review of about twenty words; one in five is an opinion, and one in five of these is the opposite one."""
    words = []
    for _ in range(random.integers(15, 25)):
        view = opinion if random.random() < 0.8 else ("bad" if opinion == "good" else "good")
        pool = FILLERS[category]
        if random.random() < 0.22:
            pool = SHARED[view] if random.random() < 0.35 else OWN[category][view]
        words.append(str(random.choice(pool)))
    return " ".join(words)


random = np.random.default_rng(0)
opinions = np.array(["good", "bad"] * 400)
books = [write(random, "books", opinion) for opinion in opinions]
kitchen = [write(random, "kitchen", opinion) for opinion in opinions]
print(books[0])
print(kitchen[0])

# %%
# Words of both categories
# ------------------------
# Single words and pairs. The vocabulary has to contain the target's words too: the network learns nothing about them
# from labels, but they take part in the alignment.

vectorizer = ma.DomainVectorizer()
source = vectorizer.fit_transform(books, X_target=kitchen)
target = vectorizer.transform(kitchen)

# %%

accuracy = {}
for name, distance in {"plain": None, "aligned": "cmd"}.items():
    model = ma.MANNClassifier(
        discrepancy=distance, max_epochs=200, patience=None, validation_fraction=0, random_state=0
    )
    accuracy[name] = model.fit(source, opinions, X_target=target).score(target, opinions)
    print(f"{name}: {accuracy[name]:.1%} of the opinions on kitchenware right")

# %%
# Words that never had a label
# ----------------------------
# What the aligned network makes of single words of kitchenware: praise is blue, complaint is red.

words = OWN["kitchen"]["good"] + OWN["kitchen"]["bad"]
thrice = vectorizer.transform([f"{word} {word} {word}" for word in words])
praise = model.predict_proba(thrice)[:, list(model.classes_).index("good")]
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
axis.barh(words[::-1], praise[::-1], color=["#b04a3a"] * 5 + ["#2f6fb0"] * 5)
axis.axvline(0.5, color="gray", linewidth=0.8)
axis.set(xlabel="probability of praise", xlim=(0, 1))

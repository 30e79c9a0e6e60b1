"""The libraries a user would pick instead, put through one task side by side; ``make bench-peers``.

Every library trains one hidden layer of 50 sigmoid units on 2,000 + 2,000 book and kitchen reviews of 5,000 counts,
batches of 300, 50 epochs, Adagrad with 0.01, cross-entropy plus the CMD of five moments, one thread. Each has its own
virtual environment under ``.peers`` and its own file ``with_NAME.py`` with one function,
``train(source, labels, target, seed)``, that returns how many steps it took and a function that predicts.
"""

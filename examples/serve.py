"""Predictions over HTTP, by FastAPI: ``pip install "fastapi[standard]"``, then
``MOMENTALIGN_MODEL=model fastapi run examples/serve.py`` with a folder that ``momentalign fit`` wrote.
"""

import os
from typing import Any

import pandas as pd
from fastapi import FastAPI, HTTPException

import momentalign as ma
from momentalign.errors import InvalidInputError

model, app = ma.load(os.environ["MOMENTALIGN_MODEL"]), FastAPI(title="momentalign")


@app.post("/predict")
def predict(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the prediction of each row, an object of column names and values."""
    try:
        return model.predict(pd.DataFrame(rows)).tolist()
    except InvalidInputError as error:  # a column is missing, or holds something else
        raise HTTPException(422, str(error)) from error

"""ADAPT 0.4.5 on TensorFlow: a BaseAdaptDeep with the CMD in its training step, trained through ``fit``.

Its own DeepCORAL takes as long a step but trains the encoder on the distance alone: labels reach only the task network,
and accuracy here stays at chance. ADAPT takes dense arrays and fills up the last batch of an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from adapt.base import BaseAdaptDeep
from numpy.typing import NDArray

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def cmd(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The CMD of five moments as anyone would write it."""
    mean_source, mean_target = tf.reduce_mean(source, 0), tf.reduce_mean(target, 0)
    centred_source, centred_target = source - mean_source, target - mean_target
    distance = tf.norm(mean_source - mean_target)
    for order in range(2, 6):
        moments = tf.reduce_mean(centred_source**order, 0), tf.reduce_mean(centred_target**order, 0)
        distance += tf.norm(moments[0] - moments[1])
    return distance


class MomentAligned(BaseAdaptDeep):
    """Encoder and task network trained on the task's loss plus the CMD of the encoded rows."""

    def train_step(self, data: Any) -> dict[str, Any]:
        """One update; ADAPT's methods override this, inside the graph that Keras traces."""
        source, target, labels, _ = self._unpack_data(data)
        with tf.GradientTape() as tape:
            encoded = self.encoder_(source, training=True)
            predicted = self.task_(encoded, training=True)
            loss = tf.reduce_mean(self.task_loss_(labels, predicted)) + cmd(
                encoded, self.encoder_(target, training=True)
            )
        variables = [*self.encoder_.trainable_variables, *self.task_.trainable_variables]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return self._update_logs(labels, predicted)


def train(
    source: NDArray[np.float32], labels: NDArray[np.int64], target: NDArray[np.float32], seed: int
) -> tuple[int, Callable[[Any], NDArray[np.int64]]]:
    """Fit with Keras' Adagrad, its accumulators started at zero as elsewhere."""
    layers = tf.keras.layers
    model = MomentAligned(
        encoder=tf.keras.Sequential([layers.Dense(50, activation="sigmoid", input_shape=source.shape[1:])]),
        task=tf.keras.Sequential([layers.Dense(2, activation="softmax", input_shape=(50,))]),
        Xt=target,
        loss="categorical_crossentropy",
        optimizer=tf.keras.optimizers.Adagrad(0.01, initial_accumulator_value=0.0),
        random_state=seed,
    )
    model.fit(source, np.eye(2, dtype=np.float32)[labels], epochs=50, batch_size=300, verbose=0)
    return int(model.optimizer.iterations.numpy()), lambda rows: model.predict(rows, verbose=0).argmax(1)

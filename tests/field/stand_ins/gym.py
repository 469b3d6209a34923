"""The part of OpenAI's gym that scripts use: an environment whose episodes do not depend on what is done.

A script may train until its episodes are long, which takes an agent that learns. Here they become long by themselves.
"""

import numpy as np

SHORT, LONG = 15, 1000
"""Steps of an episode: of the first three, and of all others."""


class Environment:
    def __init__(self):
        self._random = np.random.RandomState(0)
        self._episode = self._step = 0

    def seed(self, seed):
        self._random.seed(seed)

    def _observation(self):
        return self._random.uniform(-0.05, 0.05, 4)

    def reset(self):
        self._episode += 1
        self._step = 0
        return self._observation()

    def step(self, action):
        assert action in (0, 1)
        self._step += 1
        return self._observation(), 1.0, self._step >= (SHORT if self._episode <= 3 else LONG), {}

    def render(self):
        pass


def make(name):
    return Environment()

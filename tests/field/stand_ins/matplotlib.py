"""A matplotlib that draws nothing."""


class _Nothing:
    def __getattr__(self, name):
        return _Nothing()

    def __call__(self, *args, **kwargs):
        return _Nothing()


pyplot = _Nothing()


def use(backend):
    pass

"""What tests share: `from support.compare import close`.

* `compare`: when two results count as equal
* `draw`: random uses of each primitive
* `limits`: tests end, and leave the process as they found it
* `programs`: random graphs over all primitives, with inputs
* `reference`: the models that MXNet exported
* `scalar_handler`: `element` over plain Python numbers
"""

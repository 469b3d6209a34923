"""Graphs of `mx.rnn`, made with the MXNet that is given: the real one (tests/oracle) or gluonjit."""


def graphs(mx):
    """Symbols by name."""
    rnn, sym = mx.rnn, mx.sym

    def sequential(*cells):
        stack = rnn.SequentialRNNCell()
        for cell in cells:
            stack.add(cell)
        return stack

    shared = rnn.RNNParams("shared_")
    cells = {
        "rnn": lambda: rnn.RNNCell(3),
        "relu": lambda: rnn.RNNCell(3, activation="relu", prefix="a_"),
        "lstm": lambda: rnn.LSTMCell(3, forget_bias=2.0),
        "gru": lambda: rnn.GRUCell(3),
        "shared": lambda: sequential(rnn.RNNCell(3, params=shared), rnn.RNNCell(3, prefix="b_", params=shared)),
        "stack": lambda: sequential(rnn.LSTMCell(3), rnn.DropoutCell(0.5), rnn.GRUCell(2)),
        "both": lambda: rnn.BidirectionalCell(rnn.LSTMCell(3, prefix="l_"), rnn.GRUCell(2, prefix="r_")),
        "zoneout": lambda: rnn.ZoneoutCell(rnn.LSTMCell(3), zoneout_outputs=0.25, zoneout_states=0.5),
        "residual": lambda: rnn.ResidualCell(rnn.GRUCell(4)),
        "fused_lstm": lambda: rnn.FusedRNNCell(3, num_layers=2, bidirectional=True, get_next_state=True),
        "fused_gru": lambda: rnn.FusedRNNCell(3, mode="gru", dropout=0.5, prefix="f_"),
        "unfused": lambda: rnn.FusedRNNCell(3, num_layers=2, mode="lstm", bidirectional=True, dropout=0.5).unfuse(),
        "unfused_relu": lambda: rnn.FusedRNNCell(3, num_layers=2, mode="rnn_relu", dropout=0.5).unfuse(),
    }
    found = {}
    for name, make in cells.items():
        for layout in ("NTC", "TNC"):
            for merge in (None, True, False):
                with mx.name.NameManager():
                    outputs, states = make().unroll(2, sym.var("data"), layout=layout, merge_outputs=merge)
                flat = [s for part in states for s in (part if isinstance(part, list) else [part])]
                parts = [*(outputs if isinstance(outputs, list) else [outputs]), *flat]
                found[f"{name} {layout} {merge}"] = sym.Group(parts)
    for kind in ("ConvRNNCell", "ConvLSTMCell", "ConvGRUCell"):
        with mx.name.NameManager():
            cell = getattr(rnn, kind)((1, 2, 6, 6), 3, i2h_pad=(0, 0), h2h_dilate=(2, 2))
            outputs, states = cell.unroll(2, [sym.var("x0"), sym.var("x1")])
        found[kind] = sym.Group([*outputs, *states])
    with mx.name.NameManager():
        outputs, states = rnn.LSTMCell(3).unroll(
            2, [sym.var("x0"), sym.var("x1")], begin_state=[sym.var("h"), sym.var("c")]
        )
    found["given states"] = sym.Group([*outputs, *states])
    return found

"""A runtime of MLServer: `"implementation": "gluonjit.tools.serving.mlserver_model.GluonjitModel"`.

In `model-settings.json`, `parameters.uri` is the model's folder (as of `gluonjit serve`) or file, `parameters.extra`
may have `files` (in that folder), `inputs` (shapes by name), `threads` and `sizes`, as `gluonjit.Predictor` takes them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri

from gluonjit.base import MXNetError
from gluonjit.tools.serving.predictor import Predictor
from gluonjit.tools.serving.served_models import files_in


class GluonjitModel(MLModel):
    _calls: ThreadPoolExecutor | None = None
    """The thread of all calls, once the model is loaded: MLServer unloads models that could not be, too."""

    async def load(self) -> bool:
        uri = Path(await get_model_uri(self.settings))
        extra: dict[str, Any] = dict(getattr(self.settings.parameters, "extra", None) or {})
        if "files" in extra:
            files = tuple(str(uri / f) for f in extra["files"])
        else:
            files = files_in(uri) if uri.is_dir() else (str(uri),)
        predictor = Predictor(
            *files, inputs=extra.get("inputs"), threads=extra.get("threads"), sizes=extra.get("sizes")
        )
        self._calls = ThreadPoolExecutor(1, "gluonjit")
        await asyncio.get_running_loop().run_in_executor(self._calls, lambda: predictor.model)
        self._predictor = predictor
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        arrays = {x.name: NumpyCodec.decode_input(x) for x in payload.inputs}
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._calls, self._predictor, arrays)
        except (ValueError, MXNetError) as e:
            raise InferenceError(str(e)) from e
        asked = [y.name for y in payload.outputs or ()] or list(results)
        unknown = [name for name in asked if name not in results]
        if unknown:
            raise InferenceError(f"there is no output {unknown[0]!r}; the model gives {', '.join(results)}")
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output(name, results[name]) for name in asked],
        )

    async def unload(self) -> bool:
        if self._calls is not None:
            self._calls.shutdown(wait=False)
        return True

"""Triton: one module of the ensemble, for its Python backend."""

import triton_python_backend_utils as pb_utils

import stage


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            stage.occupy(self.name, int(number.flat[0]))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number)]))
        return responses

// What models may compute with.
#pragma once

#include <torch/csrc/jit/api/module.h>

// Throws, with the operator's name, where code of a module names one that is not listed (operators.inc), or where it holds or makes a value
// of a kind that is not. All code is looked at, whether or not it would run: functions, methods, what they call, blocks, constants.
void only_listed_operators(const torch::jit::Module& module);

// All of Kiln: the language, the devices, the library of kernels. What this includes is what is
// installed, as <kiln/folder/header.h>.
#pragma once

#include "dsl/dsl.h"
#include "ir/ir.h"
#include "kernels/kernels.h"
#include "runtime/cuda_device.h"
#include "runtime/emulator_device.h"
#include "runtime/runtime.h"
#include "runtime/stats.h"
#include "tools/install/version.h"

// Code generators.
#pragma once

#include "codegen/abi.h"
#include "codegen/host.h"

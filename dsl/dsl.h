// The embedded tile language: everything a kernel writer includes.
#pragma once

#include "dsl/atomic.h"
#include "dsl/control.h"
#include "dsl/interface.h"
#include "dsl/kernel.h"
#include "dsl/layout.h"
#include "dsl/math.h"
#include "dsl/softmax.h"
#include "dsl/storage.h"
#include "dsl/tile_ops.h"
#include "dsl/value.h"
#include "ir/error.h"

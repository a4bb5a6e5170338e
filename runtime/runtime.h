// Everything a program that runs kernels needs.
#pragma once

#include "ir/error.h"
#include "runtime/array.h"
#include "runtime/cache.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/launch.h"
#include "runtime/prepare.h"
#include "runtime/thread_pool.h"
#include "runtime/version.h"

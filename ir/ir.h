// The IR: data structure, text, law and meaning.
#pragma once

#include "ir/builder.h"
#include "ir/canon.h"
#include "ir/error.h"
#include "ir/interp.h"
#include "ir/kernel.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"

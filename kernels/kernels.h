// The kernel library.
#pragma once

#include "kernels/antidiag_scores/antidiag_scores.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/compare.h"
#include "kernels/infllmv2/compressed_scores.h"
#include "kernels/infllmv2/pooling.h"
#include "kernels/masks.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quest/quest.h"
#include "kernels/registry.h"
#include "kernels/row_softmax/row_softmax.h"
#include "kernels/select_blocks/select_blocks.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"
#include "kernels/sparse_decode/sparse_decode.h"
#include "kernels/tile_copy/tile_copy.h"
#include "kernels/xattention/prefill.h"
#include "kernels/xattention/xattention.h"

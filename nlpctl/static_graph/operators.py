"""The operators allowed in a verification: only those that compute on tensors.

Excluded on purpose: save, load and similar, py_func, print, readers, and all that speaks to other processes.
"""

from __future__ import annotations

_WORDS = """
abs accuracy arg_max arg_min argsort assign assign_value batch_norm bilinear_interp bmm cast ceil clip concat
conditional_block conv1d conv2d cos crf_decoding cumsum depthwise_conv2d dot dropout elementwise_add elementwise_div
elementwise_floordiv elementwise_max elementwise_min elementwise_mod elementwise_mul elementwise_pow elementwise_sub
equal erf exp expand expand_as expand_as_v2 expand_v2 eye fc fill_any_like fill_constant fill_constant_batch_size_like
fill_zeros_like fill_zeros_like2 flatten flatten2 flatten_contiguous_range flip floor fused_attention fused_feedforward
gather gather_nd gather_tree gelu greater_equal greater_than group_norm gru hard_sigmoid hard_swish increment
index_select instance_norm isfinite isfinite_v2 isinf_v2 isnan_v2 kldiv_loss label_smooth layer_norm leaky_relu
less_equal less_than linear_chain_crf lod_reset log log_softmax logical_and logical_not logical_or logsumexp
lookup_table lookup_table_v2 lstm masked_select matmul matmul_v2 max mean meshgrid min mish mul multihead_matmul norm
not_equal one_hot one_hot_v2 p_norm pad pad2d pad3d pool2d pow prelu range reciprocal reduce_all reduce_any reduce_max
reduce_mean reduce_min reduce_prod reduce_sum relu relu6 reshape reshape2 reverse rnn roll round rsqrt scale scatter
scatter_nd_add select_input select_output selu sequence_concat sequence_conv sequence_expand sequence_expand_as
sequence_mask sequence_pad sequence_pool sequence_reshape sequence_reverse sequence_softmax sequence_unpad set_value
shape sigmoid sign silu sin slice softmax softplus softsign split sqrt square squeeze squeeze2 stack stanh
strided_slice sum swish tanh tanh_shrink tensor_array_to_tensor tile top_k top_k_v2 transpose transpose2 tril_triu
unbind unfold unique unsqueeze unsqueeze2 unstack viterbi_decode where where_index while write_to_array
read_from_array lod_array_length array_length
"""
OPERATORS = frozenset(_WORDS.split())

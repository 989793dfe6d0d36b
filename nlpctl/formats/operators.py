"""The operators that a Paddle program may have which nlpctl runs: those that only compute on tensors.

A graph from a stranger could write to any file by `save`, or run Python by `py_func`. So whatever runs a program of a
folder first asks for the operators of all its blocks.

The list says what may run, not what may not. It was made by reading all that Paddle 2.6 and 3.1 register, 886 besides
gradients, and many dangerous ones do not look it: check_numerics writes to its `output_dir`, ap_variadic of 3.1 runs
its attributes, and builds for cards have engines of compiled code. It is wide, since a network of the user may have any
layer of Paddle's. Left out, though harmless: print (standard output is for results), optimizers, operators of other
devices, and what text does not need, such as sparse tensors and the detection of objects.
"""

from __future__ import annotations

from nlpctl.errors import UserError
from nlpctl.formats.program import Program

_WORDS = """
abs accuracy acos acosh add_group_norm_silu add_position_encoding addmm affine_channel affine_grid allclose angle
apply_per_channel_scale arg_max arg_min argsort array_length array_to_lod_tensor as_complex as_real as_strided asin
asinh assert assign assign_value atan atan2 atanh attention_lstm baddbmm batch_norm bce_loss beam_search
beam_search_decode bernoulli bicubic_interp bicubic_interp_v2 bilinear_interp bilinear_interp_v2 bilinear_tensor_product
bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
block_multihead_attention bmm broadcast_tensors cast ceil celu channel_shuffle cholesky cholesky_solve clip clip_by_norm
complex concat conditional_block conditional_block_infer conj conv1d conv2d conv2d_transpose conv2d_transpose_bias
conv3d conv3d_transpose copysign cos cosh crf_decoding crop crop_tensor cross cross_entropy cross_entropy2 ctc_align
cudnn_lstm cummax cummin cumprod cumsum deformable_conv depthwise_conv2d depthwise_conv2d_transpose dequantize
dequantize_abs_max dequantize_linear dequantize_log determinant diag_embed diag_v2 diagonal digamma dirichlet dist dot
dropout dropout_nd edit_distance eig eigh eigvals eigvalsh einsum elementwise_add elementwise_div elementwise_floordiv
elementwise_fmax elementwise_fmin elementwise_heaviside elementwise_max elementwise_min elementwise_mod elementwise_mul
elementwise_pow elementwise_sub elu embedding_with_scaled_gradient empty equal equal_all erf erfinv exp expand expand_as
expand_as_v2 expand_v2 expm1 exponential eye fake_channel_wise_dequantize_max_abs fake_channel_wise_quantize_abs_max
fake_channel_wise_quantize_dequantize_abs_max fake_dequantize_max_abs fake_quantize_abs_max
fake_quantize_dequantize_abs_max fake_quantize_dequantize_moving_average_abs_max fake_quantize_moving_average_abs_max
fake_quantize_range_abs_max fc feed fetch fetch_v2 fft_c2c fft_c2r fft_r2c fill fill_any fill_any_like fill_constant
fill_constant_batch_size_like fill_diagonal fill_diagonal_tensor fill_zeros_like fill_zeros_like2 flash_attn
flash_attn_qkvpacked flash_attn_unpadded flash_attn_v3 flash_attn_v3_varlen flash_attn_varlen_qkvpacked
flashmask_attention flatten flatten2 flatten_contiguous_range flip floor fold fractional_max_pool2d
fractional_max_pool3d frame frobenius_norm fused_attention fused_bias_act fused_bias_dropout_residual_layer_norm
fused_bias_residual_layernorm fused_bn_activation fused_bn_add_activation fused_conv2d fused_conv2d_add_act fused_conv3d
fused_dot_product_attention fused_dropout_add fused_elementwise_add fused_elementwise_div fused_elementwise_mul
fused_elementwise_sub fused_elemwise_activation fused_elemwise_add_activation fused_embedding_eltwise_layernorm
fused_embedding_fc_lstm fused_embedding_seq_pool fused_fc_elementwise_layernorm fused_feedforward fused_gate_attention
fused_gemm_epilogue fused_matmul fused_multi_transformer fused_multi_transformer_int8 fused_rms_norm_ext
fused_rotary_position_embedding fused_softmax_mask fused_softmax_mask_upper_triangle fused_softplus fused_token_prune
fused_transpose fusion_gru fusion_lstm fusion_repeated_fc_relu fusion_seqconv_eltadd_relu fusion_seqexpand_concat_fc
fusion_seqpool_concat fusion_squared_mat_sub fusion_transpose_flatten_concat gammaincc gammaln gather gather_nd
gather_tree gaussian_inplace gaussian_random gelu gemm_epilogue graph_send_recv graph_send_ue_recv graph_send_uv
greater_equal greater_than grid_sampler group_norm gru gru_unit gumbel_softmax hard_shrink hard_sigmoid hard_swish hash
histogram huber_loss i0 i0e i1 i1e im2sequence imag increment index_add index_elementwise_get index_elementwise_put
index_elementwise_put_with_tensor index_put index_sample index_select index_select_strided instance_norm inverse
is_empty isclose isfinite isfinite_v2 isinf isinf_v2 isnan isnan_v2 kldiv_loss kron kthvalue l1_norm label_smooth
layer_norm leaky_relu lerp less_equal less_than lgamma linear_chain_crf linear_interp linear_interp_v2 linspace
llm_int8_linear lod_array_length lod_rank_table lod_reset lod_tensor_to_array log log10 log1p log2 log_loss log_softmax
logcumsumexp logical_and logical_not logical_or logical_xor logit logsigmoid logspace logsumexp lookup_table
lookup_table_v2 lp_pool2d lrn lstm lstsq lu lu_solve lu_unpack masked_fill masked_multihead_attention masked_select
matmul matmul_v2 matrix_power matrix_rank matrix_rank_atol_rtol max max_pool2d_v2 max_pool2d_with_index
max_pool3d_with_index max_sequence_len maxout mean memcpy memcpy_d2h memcpy_h2d memory_efficient_attention
merge_lod_tensor merge_lod_tensor_infer meshgrid min minus mish mode moe moving_average_abs_max_scale mul multi_dot
multi_gru multihead_matmul multinomial multiplex mv nanmedian nearest_interp nearest_interp_v2 nextafter nll_loss norm
not_equal one_hot one_hot_v2 overlap_add p_norm pad pad2d pad3d partial_concat partial_sum pixel_shuffle pixel_unshuffle
poisson polygamma pool2d pool3d pow prelu put_along_axis pylayer qr quant_linear quantize quantize_linear randint
randperm range read_from_array real reciprocal recurrent reduce_all reduce_amax reduce_amin reduce_any reduce_as
reduce_max reduce_mean reduce_min reduce_prod reduce_sum relu relu6 renorm reorder_lod_tensor_by_rank repeat_interleave
requantize reshape reshape2 reverse rint rms_norm rnn roi_align roll round row_conv rrelu rsqrt sampling_id scale
scatter scatter_nd_add searchsorted seed segment_pool select_input select_output self_dp_attention selu sequence_concat
sequence_conv sequence_enumerate sequence_erase sequence_expand sequence_expand_as sequence_mask sequence_pad
sequence_pool sequence_reshape sequence_reverse sequence_scatter sequence_slice sequence_softmax sequence_unpad set
set_value shape shape64 shard_index share_data shrink_rnn_memory shuffle_channel sigmoid
sigmoid_cross_entropy_with_logits sign silu sin sinh size skip_layernorm slice slogdeterminant soft_relu softmax
softmax_with_cross_entropy softplus softshrink softsign solve sparse_attention spectral_norm split split_lod_tensor spp
sqrt square squared_l2_norm squeeze squeeze2 stack standard_gamma stanh stft strided_slice sum svd svdvals swiglu swish
take_along_axis tan tanh tanh_shrink temporal_shift tensor_array_to_tensor tensor_unfold thresholded_relu tile top_k
top_k_v2 top_p_sampling trace transfer_dtype transfer_layout transpose transpose2 triangular_solve tril_indices
tril_triu trilinear_interp trilinear_interp_v2 triu_indices trunc truncated_gaussian_random unbind unfold uniform_random
uniform_random_batch_size_like uniform_random_inplace unique unique_consecutive unique_with_counts unpool unpool3d
unsqueeze unsqueeze2 unstack unzip variable_length_memory_efficient_attention variance view_dtype view_shape view_slice
viterbi_decode warpctc warprnnt weight_dequantize weight_only_linear weight_quantize where where_index while
write_to_array
"""
OPERATORS = frozenset(_WORDS.split())


def refuse_operators(program: Program) -> None:
    """UserError if `program` has operators that may do more than compute."""
    if others := sorted(program.operator_types - OPERATORS):
        message = f"this graph has operators that nlpctl does not run: {', '.join(others)}"
        hint = "they may do more than compute (docs/security.md); if it is yours, use the model it was exported from"
        if others == ["print"]:
            hint = "take print(...) out of the network's forward, and export it again"
        raise UserError(message, str(program.file), hint)

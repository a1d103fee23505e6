"""What Unsloth's own keys mean for memory: sentences for `explain` and for editors."""

MEANINGS = {
    "max_seq_length": "The longest row; longer ones are cut. Wins over max_length unless that is shorter.",
    "load_in_4bit": "The base in 4 bits: about a quarter of its 16-bit size. On unless another width is asked for.",
    "load_in_8bit": "The base in 8 bits: half of its 16-bit size. Leaves the fast path: layers are transformers' own.",
    "load_in_16bit": "The base in 16 bits: four times the memory of 4 bits, and faster steps.",
    "full_finetuning": "Trains every weight: gradients and optimizer states for all of them.",
    "dtype": "Type of weights and products; unset: bfloat16 where the card has it, else float16.",
    "use_gradient_checkpointing": (
        '"unsloth" keeps the input of each layer in host memory, True on the card; False keeps all activations.'
    ),
    "offload_embedding": "Keeps the input embedding in host memory; auto: only where the card is nearly full.",
    "offload_layers": "Keeps some frozen layers in host memory and copies them in when they are needed.",
    "fast_inference": "Loads vLLM in the same process, which takes gpu_memory_utilization of the card.",
    "gpu_memory_utilization": "The share of the card that vLLM takes where fast_inference is on.",
    "lora_r": "The rank: adapter weights, gradients and optimizer states grow with it.",
    "lora_dropout": "Above 0 the kernels keep a mask for each projection.",
    "lora_target_modules": "Modules with an adapter. embed_tokens and lm_head are trained whole instead.",
    "lora_modules_to_save": "Modules that are trained whole, as copies beside the frozen ones.",
    "float32_mixed_precision": "Full fine-tuning with weights in fp32: twice the memory of bf16.",
}

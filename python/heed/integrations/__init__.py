"""heed inside other programs: heed.integrations.torch.use(), heed.integrations.transformers.register()."""

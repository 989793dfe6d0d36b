"""Commands on trained models besides answering: params, calibrate, bench."""

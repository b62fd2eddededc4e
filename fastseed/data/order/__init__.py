"""Orders of samples: functions of the scope, and the samplers that read them."""

"""SageMaker Runtime: InvokeEndpoint in its three forms, and the parts that other doors share."""

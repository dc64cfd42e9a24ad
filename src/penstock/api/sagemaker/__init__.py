"""SageMaker: models, endpoint configurations, endpoints, components, transform jobs."""

"""The world of a story: a cluster, the loads of its pods, Fastpath beside the controllers, and their audit.

A story says what is in the cluster and what happens. It runs on the sandbox, and on a real control plane.
"""

"""From a trained network to graphs: translated, compared with the network, timed, arranged for other servers."""

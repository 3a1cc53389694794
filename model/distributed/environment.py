"""The environment variables between the launcher and its ranks."""

RUN = "BERT_RUN"  # the launcher's unique name for one start of a training
SECRET = "BERT_SECRET"  # what the ranks of a training know alone
HOSTS = "BERT_RANK_HOSTS"  # node names in rank order, separated by commas
HOSTFILE = "BERT_HOSTFILE"  # the text of a hostfile that is in no file
LAUNCHER = "BERT_LAUNCHER"  # process id of `model.launch`
RANKS = "BERT_RANKS"  # folder for the process ids and exit codes of this node's ranks
PROMISED = "BERT_GPUS"  # the GPUs of this node, by k8s/pretrain.yaml or deploy/slurm.sh
# With a hostfile or a number of ranks deepspeed counts GPUs from 0, even if others are assigned.
GPUS = "BERT_VISIBLE_GPUS"  # those that are ours, which `model.launch` notes

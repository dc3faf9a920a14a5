"""Why an op type has no converter: a verdict for each, by the first pattern that fits its name."""

from __future__ import annotations

import re

VERDICTS: tuple[tuple[str, str, str], ...] = (
    (
        "cannot be in a body",
        "TensorFlow makes it no more: another op has taken its place",
        "AdjustContrast|BatchCholesky|BatchCholeskyGrad|BatchI?FFT[23D]*|BatchMatrix.*|"
        "BatchNormWithGlobal.*|BatchSelfAdjointEig.*|BatchSvd|Conv3DBackprop(Filter|Input)|"
        "MatrixExponential|QuantizeAndDequantize|RandomCrop|RandomPoisson|SelfAdjointEig|"
        "StatefulStandardNormal|TileGrad|TopK|Placeholder(V2)?",
    ),
    (
        "refused",
        "control flow of TensorFlow 1: use tf.while_loop and tf.cond",
        "Abort|ControlTrigger|(Ref)?(Enter|Exit|Merge|NextIteration|Switch)|LoopCond|RefIdentity|"
        "RefSelect|SymbolicGradient|For",
    ),
    (
        "refused",
        "variables, lists and stacks of TensorFlow 1, known by reference",
        "(Sparse)?Apply.*|Assign(Add|Sub)?|Scatter(Add|Div|Max|Min|Mul|Nd.*|Sub|Update)|CountUpTo|"
        "StridedSliceAssign|(Destroy)?TemporaryVariable|Variable(V2)?|IsVariableInitialized|"
        "TensorArray.*|Stack.*|.*Accumulator.*",
    ),
    (
        "refused",
        "datasets and iterators are made and read outside of the loop",
        ".*(Dataset|Iterator|MemoryCache|SeedGenerator|IterationCounter).*|"
        ".*(MultiDevice|StatsAggregator|ThreadPoolHandle).*|(Unc|C)ompressElement|"
        "ComputeBatchSize|WindowOp|GetOptions|GetElementAtIndex",
    ),
    (
        "refused",
        "queues, staging areas, readers, locks and files are shared by all iterations",
        ".*(Queue|Barrier|Reader|Mutex|[Ss]tage|Snapshot).*|(Ordered)?Map(Clear|Peek|Size|Incomplete.*)|"
        "Unbatch(Grad)?|Batch|BatchFunction|Restore.*|Save.*|DistributedSave|MergeV2Checkpoints|"
        "(Get|Delete)Session.*|RecordInput|WriteFile|FileSystem.*|DisableCopyOnRead|"
        "ConsumeMutexLock|(Ordered)?MapUnstage.*",
    ),
    (
        "refused",
        "it talks to other devices or machines",
        ".*(TPU|Collective|Nccl|Infeed|Outfeed|SparseCore|XlaSparse|CooTensor|Minibatch).*|"
        "AllToAll|CrossReplicaSum|CheckPinned|DeviceIndex|(Xla|ReadVariableXla|AssignVariableXla)"
        "(Concat|Split)ND|Prelinearize(Tuple)?|Recv|Send|RemoteCall|SyncDevice|WorkerHeartbeat|"
        "RpcCall|GlobalIterId|StoreMinibatch.*|ExecuteTPU.*",
    ),
    (
        "looped in order",
        "an optimizer's update of a variable depends on those before it",
        "Resource(Sparse)?Apply.*",
    ),
    (
        "looped in order",
        "each iteration draws a sample of its own from what the op keeps",
        "(LearnedUnigram|ThreadUnsafeUnigram)CandidateSampler|Timestamp",
    ),
    (
        "a loop",
        "no kernel on a CPU, nor in its XLA: a rule could not be tested",
        "CudnnRNN(Canonical|Params).*|CTCLossV2|Conv2DBackprop(Filter|Input)V2|I?R?FFTND|"
        "GenerateBoundingBoxProposals|MaxPoolGradGradWithArgmax|QuantizedReluX|BoostedTrees.*|IsBoosted.*|"
        "SparseMatrix(Add|Mul|Softmax(Grad)?|Zeros)|DebugIdentityV3",
    ),
    (
        "a loop",
        "the kernel writes into one of its inputs, and may end the process on a batch",
        "QuantizedConv2DWithBias(Signed)?SumAnd.*",
    ),
    (
        "a loop",
        "the range of the result is that of all the data that the kernel is given",
        "QuantizeDownAndShrinkRange|Requantiz.*PerChannel|RequantizationRange|"
        "QuantizedInstanceNorm",
    ),
    (
        "a loop",
        "a handle in a scalar stands for one matrix, map or composite of a row",
        "SparseMatrix(Add|Mul|Softmax|SoftmaxGrad|Zeros)|(Empty)?TensorMap.*|"
        "CompositeTensorVariant.*|RaggedTensor(From|To)Variant.*|(De)?[Ss]erialize(Many)?Sparse|.*SparseTo?TensorsMap|"
        ".*SparseFromTensorsMap",
    ),
    (
        "a loop",
        "decided step by step: what comes next depends on what was chosen before",
        "KMC2.*|KmeansPlusPlus.*|Sdca.*",
    ),
    (
        "kept, or run once",
        "it reads nothing of the iteration",
        "Const|ImmutableConst|NoOp|FakeParam|Fact|(Anonymous)?(Mutable)?(Dense)?HashTable.*|"
        "(Anonymous)?Mutable.*HashTable.*|InitializeTable.*|LookupTable.*|LoadAndRemapMatrix|"
        "Create(Summary).*|SummaryWriter|ImportEvent",
    ),
    (
        "a loop",
        "docs/adding_an_op.md writes its converter, as an example",
        "AudioSpectrogram",
    ),
    (
        "a loop",
        "text, encoded data or files: each row is taken apart or put together by itself",
        "DecodeJxl|ParseSequenceExample|GenerateVocab.*",
    ),
    (
        "a loop",
        "summaries and debugging: each iteration reports by itself",
        "(Audio|Histogram|Image|Merge|Scalar|Tensor)Summary(V2)?|Debug.*",
    ),
    (
        "a loop",
        "its result is as large as the data of the row says, along several axes",
        "MapDefun",
    ),
)


def verdict(op_type: str) -> tuple[str, str] | None:
    """The outcome of an op type without a converter, and the reason; None if undecided."""
    for what, why, pattern in VERDICTS:
        if re.fullmatch(pattern, op_type):
            return what, why
    return None

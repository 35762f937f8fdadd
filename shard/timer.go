package shard

import "carillon/timer"

// Meta is the group that holds topics, nodes and placement.
const Meta timer.ShardID = 0

package uverbs

// Attributes of methods are numbered for each method by ib_user_ioctl_cmds.h.

// AttrHandle is the handle of the object in methods that create or destroy an object.
const AttrHandle = 0

// DestroyAttrReply is the [DestroyReply] of the methods that destroy a CQ, SRQ or QP.
const DestroyAttrReply = 1

// Attributes of MethodCreateCQ, by enum uverbs_attrs_create_cq_cmd_attr_ids.
const (
	CQAttrDepth      = 1
	CQAttrUser       = 2 // user handle, which events contain
	CQAttrChannel    = 3
	CQAttrVector     = 4
	CQAttrReplyDepth = 6
	CQAttrEvents     = 7
)

// Attributes of MethodCreateQP, by enum uverbs_attrs_create_qp_cmd_attr_ids.
const (
	QPAttrXRCD        = 1
	QPAttrPD          = 2
	QPAttrSRQ         = 3
	QPAttrSendCQ      = 4
	QPAttrRecvCQ      = 5
	QPAttrUser        = 7 // user handle, which events contain
	QPAttrCap         = 8
	QPAttrType        = 9
	QPAttrFlags       = 10
	QPAttrEvents      = 12
	QPAttrReplyCap    = 13
	QPAttrReplyNumber = 14
)

// Attributes of MethodCreateSRQ, by enum uverbs_attrs_create_srq_cmd_attr_ids.
const (
	SRQAttrPD          = 1
	SRQAttrXRCD        = 2
	SRQAttrCQ          = 3
	SRQAttrUser        = 4 // user handle, which events contain
	SRQAttrMaxWR       = 5
	SRQAttrMaxSGE      = 6
	SRQAttrLimit       = 7
	SRQAttrType        = 9
	SRQAttrEvents      = 10
	SRQAttrReplyMaxWR  = 11
	SRQAttrReplyMaxSGE = 12
	SRQAttrReplyNumber = 13
)

// Attributes of methods of the device itself, by uverbs_attrs_get_context_attr_ids,
// uverbs_attrs_query_port_cmd_attr_ids, uverbs_attrs_query_gid_table_cmd_attr_ids and
// uverbs_attrs_query_gid_entry_cmd_attr_ids.
const (
	contextAttrVectors = 0
	contextAttrSupport = 1

	portAttrNumber = 0
	portAttrReply  = 1

	gidsAttrEntryLen = 0
	gidsAttrFlags    = 1
	gidsAttrReply    = 2
	gidsAttrCount    = 3

	gidAttrPort  = 0
	gidAttrIndex = 1
	gidAttrFlags = 2
	gidAttrReply = 3
)

package uverbs

import "fmt"

// Driver numbers the kernel drivers, by enum rdma_driver_id of ib_user_ioctl_verbs.h. A call to a device of
// another driver fails with EINVAL.
type Driver uint32

// Drivers.
const (
	DriverUnknown Driver = 0
	DriverMLX5    Driver = 1
	DriverRXE     Driver = 14
)

// String is the name of the driver, or its number.
func (d Driver) String() string {
	switch d {
	case DriverUnknown:
		return "unknown"
	case DriverMLX5:
		return "mlx5"
	case DriverRXE:
		return "rxe"
	}
	return fmt.Sprintf("driver %d", uint32(d))
}

// Method is a method of an object, by ib_user_ioctl_cmds.h.
type Method struct{ Object, Number uint16 }

// Methods.
var (
	MethodInvokeWrite = Method{0, 0}
	MethodQueryPort   = Method{0, 2}
	MethodGetContext  = Method{0, 3}
	MethodGIDTable    = Method{0, 5}
	MethodGIDEntry    = Method{0, 6}
	MethodDeallocPD   = Method{1, 0}
	MethodCreateCQ    = Method{3, 0}
	MethodDestroyCQ   = Method{3, 1}
	MethodCreateQP    = Method{4, 0}
	MethodDestroyQP   = Method{4, 1}
	MethodCreateSRQ   = Method{5, 0}
	MethodDestroySRQ  = Method{5, 1}
	MethodDestroyAH   = Method{6, 0}
	MethodDeregMR     = Method{7, 1}
	MethodCloseXRCD   = Method{10, 0}
	MethodAsyncEvents = Method{16, 0}
)

// Methods of the driver mlx5, of the object MLX5_IB_OBJECT_UAR of mlx5_user_ioctl_cmds.h.
var (
	MethodMLX5AllocUAR = Method{0x1008, 0x1000}
	MethodMLX5FreeUAR  = Method{0x1008, 0x1001}
)

var methodNames = map[Method]string{
	MethodInvokeWrite: "invoke a write command",
	MethodQueryPort:   "query port",
	MethodGetContext:  "get context",
	MethodGIDTable:    "query GID table",
	MethodGIDEntry:    "query GID",
	MethodDeallocPD:   "free PD",
	MethodCreateCQ:    "create CQ",
	MethodDestroyCQ:   "destroy CQ",
	MethodCreateQP:    "create QP",
	MethodDestroyQP:   "destroy QP",
	MethodCreateSRQ:   "create SRQ",
	MethodDestroySRQ:  "destroy SRQ",
	MethodDestroyAH:   "destroy AH",
	MethodDeregMR:     "deregister memory",
	MethodCloseXRCD:   "close XRC domain",
	MethodAsyncEvents: "open asynchronous events",

	MethodMLX5AllocUAR: "allocate UAR page",
	MethodMLX5FreeUAR:  "free UAR page",
}

// String says what the method does.
func (m Method) String() string {
	if s, ok := methodNames[m]; ok {
		return s
	}
	return fmt.Sprintf("method %d of object %d", m.Number, m.Object)
}

// CommandNumber is a command of the write ABI, by enum ib_uverbs_write_cmds of ib_user_verbs.h.
type CommandNumber uint32

// Commands.
const (
	CmdQueryDevice CommandNumber = 1
	CmdAllocPD     CommandNumber = 3
	CmdCreateAH    CommandNumber = 5
	CmdRegMR       CommandNumber = 9
	CmdCompChannel CommandNumber = 17
	CmdReqNotifyCQ CommandNumber = 23
	CmdQueryQP     CommandNumber = 25
	CmdModifyQP    CommandNumber = 26
	CmdPostSend    CommandNumber = 28
	CmdModifySRQ   CommandNumber = 33
	CmdQuerySRQ    CommandNumber = 34
	CmdOpenXRCD    CommandNumber = 37
	CmdOpenQP      CommandNumber = 40
)

var commandNames = map[CommandNumber]string{
	CmdQueryDevice: "query device",
	CmdAllocPD:     "allocate PD",
	CmdCreateAH:    "create AH",
	CmdRegMR:       "register memory",
	CmdCompChannel: "create completion channel",
	CmdReqNotifyCQ: "arm CQ",
	CmdQueryQP:     "query QP",
	CmdModifyQP:    "modify QP",
	CmdPostSend:    "post send",
	CmdModifySRQ:   "modify SRQ",
	CmdQuerySRQ:    "query SRQ",
	CmdOpenXRCD:    "open XRC domain",
	CmdOpenQP:      "open QP",
}

// String says what the command does.
func (c CommandNumber) String() string {
	if s, ok := commandNames[c]; ok {
		return s
	}
	return fmt.Sprintf("command %d", uint32(c))
}

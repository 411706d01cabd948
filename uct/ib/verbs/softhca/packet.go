package softhca

// Packets on the request ring.
const (
	pktFiller   = iota
	pktSend     // RC send: payload, imm with flagImm
	pktWrite    // RDMA write through the target: payload at raddr
	pktWriteImm // the immediate of a write whose bytes are in place already
	pktRead     // RDMA read through the target: dmaLen bytes at raddr
	pktAtomicFA // fetch-and-add through the target
	pktAtomicCS // compare-and-swap through the target
	pktDatagram // UD send
	pktFault    // the initiator was refused: status is what happened, msn the first of the connection
	pktFilled   // a send that the initiator has put into receive raddr of the SRQ

	// Packets on the response ring.
	pktAck      // everything up to msn is done
	pktNak      // msn was refused with status; everything before is done
	pktRNR      // msn found no receive; status is the timer code, or rnrBusy
	pktReadData // payload at offset raddr of the oldest request, which is msn
	pktAtomicOK // swapAdd is the old value
)

// rnrBusy in pktRNR: a peer is filling the receive that is next. It is no timer code.
const rnrBusy = 0xff

// Packet flags.
const (
	flagFirst     = 1 << iota // first packet of a message
	flagLast                  // last packet of a message
	flagImm                   // imm is valid
	flagSolicited             // raise a solicited event
	flagXRC                   // of an XRC initiator: ext is the number of the SRQ
)

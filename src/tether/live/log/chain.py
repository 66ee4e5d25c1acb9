"""The chain of hashes, followed to prove that nothing in a log was altered."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tether.errors import AlteredLog, InputError
from tether.live.log.store import Entry, Head, Store, genesis_of


class Chain:
    """Follows a log entry by entry from `head` on, and refuses the first that does not fit."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def follow(self, entry: Entry) -> None:
        """Check that this is the next entry and unaltered; AlteredLog says what is wrong with which one."""
        expected = self.head.seq + 1
        if entry.seq != expected:
            what = f"entry {expected} is missing" if entry.seq > expected else f"entry {entry.seq} comes again"
            raise AlteredLog(f"{what}: after entry {self.head.seq} the log goes on with {entry.seq}.", expected)
        if entry.previous != self.head.hash:
            raise AlteredLog(
                f"entry {entry.seq} does not follow the one before it: it names the hash {entry.previous:.16}…, and "
                f"entry {self.head.seq} has {self.head.hash:.16}….",
                entry.seq,
            )
        if (computed := _hash_of(entry)) != entry.hash:
            raise AlteredLog(
                f"entry {entry.seq} was altered: its content gives the hash {computed:.16}…, not {entry.hash:.16}….",
                entry.seq,
            )
        self.head = Head(entry.seq, entry.hash)


def _hash_of(entry: Entry) -> str:
    """The hash that the content gives; none for what cannot be content, such as an infinite time."""
    try:
        return entry.expected_hash()
    except InputError:
        return "none"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first entry that is not as it was written (0: the log as a whole), and why."""

    seq: int
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of a whole log found: where it ends as far as it is good, and the first fault, if any."""

    head: Head
    fault: Fault | None


def verify(entries: Iterable[Entry], genesis: str) -> Fault | None:
    """The first fault in a log from its first entry on, or None. It cannot see a cut tail: see `verify_store`."""
    chain = Chain(Head(0, genesis))
    try:
        for entry in entries:
            chain.follow(entry)
    except AlteredLog as error:
        return Fault(error.seq, str(error))
    return None


def verify_store(store: Store, known: Head | None = None, page: int = 1000) -> Verdict:
    """Follow a store's whole chain and compare its index of keys. `known`: a head noted earlier, which finds a cut tail
    and a chain that was computed anew. Entries that arrive meanwhile are checked too."""
    chain = Chain(Head(0, genesis_of(store.identity())))
    if known is not None and known.seq == 0 and known != chain.head:
        return Verdict(chain.head, Fault(0, "the noted head is the start of another log."))
    try:
        while entries := _page(store, chain, page):
            for entry in entries:
                chain.follow(entry)
                if known is not None and entry.seq == known.seq and entry.hash != known.hash:
                    raise _written_anew(chain.head, known)
            _check_keys(store, entries)
        if known is not None and chain.head.seq < known.seq:
            raise _cut_off(chain.head, known)
    except AlteredLog as error:
        return Verdict(chain.head, Fault(error.seq, str(error)))
    return Verdict(chain.head, None)


def entries_of(store: Store, until: Head, page: int = 1000) -> Iterator[Entry]:
    """The entries up to the head `until`, whatever arrives meanwhile, each followed before it is handed on."""
    chain = Chain(Head(0, genesis_of(store.identity())))
    while chain.head.seq < until.seq:
        entries = _page(store, chain, min(page, until.seq - chain.head.seq))
        if not entries:
            raise _cut_off(chain.head, until)
        for entry in entries:
            chain.follow(entry)
            yield entry
    if chain.head.hash != until.hash:
        raise _written_anew(chain.head, until)


def _written_anew(head: Head, noted: Head) -> AlteredLog:
    return AlteredLog(
        f"entry {head.seq} has the hash {head.hash:.16}…, the noted head has {noted.hash:.16}…: this is another log, "
        "or it was written anew.",
        head.seq,
    )


def _cut_off(head: Head, noted: Head) -> AlteredLog:
    return AlteredLog(
        f"the tail is cut off: the log ends at entry {head.seq}, the noted head is entry {noted.seq}.", head.seq + 1
    )


def _page(store: Store, chain: Chain, limit: int) -> list[Entry]:
    """The next page. Where a row cannot even be read, the rows before it are followed first: they may be the fault."""
    try:
        return store.read(chain.head.seq, limit)
    except AlteredLog as error:
        before = error.seq - chain.head.seq - 1
        if before > 0:
            for entry in store.read(chain.head.seq, before):
                chain.follow(entry)
        raise


def _check_keys(store: Store, entries: Sequence[Entry]) -> None:
    """Every key of these entries must be in the index, pointing at its entry: else it could be used twice."""
    expected = {key: entry.seq for entry in entries for key in entry.unique}
    places = store.places(list(expected))
    for key, seq in expected.items():
        if places.get(key) != seq:
            raise AlteredLog(
                f"entry {seq} holds the key {key!r:.80}, but the index of keys points at entry {places.get(key)}.", seq
            )

"""Watching a job until it is closed, and the exit status that it ends in."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, NotRunning, StationFailed
from device_agent.protocol.outcomes import Outcome
from gateway.cli.failures import INTERRUPTED
from gateway.cli.output import Output
from gateway.cli.progress import ProgressLine
from gateway.cli.results import Results
from gateway.cli.text import dark_since, safe, tally
from gateway.cli.views import JobClosed, JobSeen, JobView, OutcomeView, Progress, SiteProgress

if TYPE_CHECKING:
    from gateway.cli.client import StationClient


def watch(
    client: StationClient, jid: str, output: Output, *, as_json: bool, verbose: bool, accepted: bool = False
) -> int:
    """Print every outcome as it comes until the job is closed; the exit status.

    ``accepted`` says that the station is known to have this job. Ctrl-C only stops the watching: it says how to go on,
    and the status is 130. Raises ``NotRunning`` when the station goes away in the middle.
    """
    results = Results(output, as_json=as_json, fold=not verbose)
    progress = ProgressLine(output)
    closed: JobView | None = None
    try:
        with closing(client.watch(jid)) as messages:
            for message in messages:
                accepted = True
                if isinstance(message, JobClosed):
                    closed = message.job
                    break
                with _interrupts_held():
                    _show(message, results, progress, output)
    except KeyboardInterrupt:
        progress.clear()
        results.settle(0)
        output.note(f"detached: job {jid} goes on")
        for line in ways_back(jid):
            output.note(f"  {line}")
        return INTERRUPTED
    except (NotRunning, StationFailed) as error:
        progress.clear()
        results.settle(0)
        if accepted:
            error.what = f"{error.what}; job {jid} is not lost"
            error.hint = "   then   ".join(hint for hint in (error.hint, f"outstation jobs watch {jid}") if hint)
        raise
    progress.clear()
    results.settle(0 if closed is None else closed.expected)
    if closed is None:
        raise NotRunning(
            f"the station went away before job {jid} was closed; the job is not lost",
            error_id="station.gone",
            hint=f"outstation jobs watch {jid}",
        )
    return summarise(closed, output, as_json=as_json)


def _show(message: JobSeen | OutcomeView | Progress, results: Results, progress: ProgressLine, output: Output) -> None:
    if isinstance(message, OutcomeView):
        if not results.holds(message):
            progress.clear()
        results.add(message)
        output.flush()
        return
    where = message.job if isinstance(message, JobSeen) else message
    if isinstance(message, JobSeen) and message.job.held:
        progress.clear()
        output.note(held_words(message.job.jid))
    if results.due(where.expected):
        progress.clear()
        results.settle(where.expected)
        output.flush()
    progress.show(where)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until what is being printed is whole: a line torn in the middle would be printed again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def held_words(jid: str) -> str:
    """What a job waits for that is held."""
    return f"held: it starts when an approver releases it: outstation jobs release {jid}"


def ways_back(jid: str) -> list[str]:
    """What to type to see a job again, or to stop it."""
    return [
        f"watch it again:   outstation jobs watch {jid}",
        f"where it stands:  outstation jobs show {jid}",
        f"stop the rest:    outstation jobs cancel {jid}",
    ]


def summarise(job: JobView, output: Output, *, as_json: bool) -> int:
    """Say how a job ended, in one line; the exit status."""
    dark = unknown_sites(job)
    status = exit_status(job)
    if as_json:
        output.json(summary_fields(job, status))
        return status
    if job.expected == 0 and not dark:
        output.note(f"jid {job.jid}: no device matched {safe(job.tgt)}")
        return status
    output.note(f"jid {job.jid}: {job.expected:,} expected: {tally(job.counts) or 'no outcome'}")
    for site in dark:
        output.note(f"  site {safe(site.site)}: {dark_since(site.last_seen)}; its devices are not counted above")
    if job.missing:
        output.note(f"  no site knows: {safe(', '.join(job.missing))}")
    if job.cancelled:
        output.note("  the job was cancelled")
    return status


def summary_fields(job: JobView, status: int) -> dict[str, Any]:
    """The last line of ``--json``."""
    return {
        "type": "summary",
        "jid": job.jid,
        "fun": job.fun,
        "tgt": job.tgt,
        "expected": job.expected,
        "counts": job.counts,
        "cancelled": job.cancelled,
        "missing": job.missing,
        "dark_sites": [site.site for site in unknown_sites(job)],
        "exit_status": status,
    }


def exit_status(job: JobView) -> int:
    """0 when at least one device was expected, each is ok, and every site has said whom it answers for."""
    all_ok = job.expected > 0 and job.counts.get(Outcome.OK, 0) == job.expected == sum(job.counts.values())
    return EXIT_OK if all_ok and not unknown_sites(job) and not job.missing else EXIT_NOT_ALL_OK


def unknown_sites(job: JobView) -> list[SiteProgress]:
    """Sites that were dark all along, so that not even the number of their devices is known."""
    return [site for site in job.sites if site.state == "dark" and site.expected == 0]

"""From transactions to membership spells: when a customer came, how long the membership lasted, whether it ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from paper.kkbox.files import days_of

__all__ = ["GRACE_DAYS", "LAST_CHURN_DAY", "spells"]

GRACE_DAYS = 30  # a membership not renewed within so many days after its end has churned
LAST_CHURN_DAY = int(np.datetime64("2017-01-29").astype(np.int64))  # 30 days before the last transaction of the files
_AGE_DAY = int(np.datetime64("2017-03-01").astype(np.int64))  # the day at which members' ages are taken

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def spells(
    train: pd.DataFrame, members: pd.DataFrame, transactions: pd.DataFrame, *, as_published: bool
) -> pd.DataFrame:
    """The membership spells of some customers with their covariates at the start, by customer and start.

    All rows of those customers must be given, transactions in the order of the file.
    """
    ids, customers = pd.factorize(transactions["msno"], sort=True)
    date = days_of(transactions["transaction_date"], "transactions.csv, transaction_date")
    expires = days_of(transactions["membership_expire_date"], "transactions.csv, membership_expire_date")
    order = np.lexsort((date, ids))  # stable: transactions of one day stay in the order of the file
    ids, date, expires = ids.astype(np.int64)[order], date[order], expires[order]
    churners = train.loc[train["is_churn"] == 1, "msno"]
    labelled = pd.Index(customers).isin(churners)[ids]

    valid = expires >= date
    if not as_published:  # what is no valid subscription cannot renew one either
        order, ids, date, expires, labelled = (a[valid] for a in (order, ids, date, expires, labelled))
        valid = np.ones(len(ids), dtype=bool)
    last_of_day = _ends(ids, date)
    has_next = np.append(ids[1:] == ids[:-1], False)[: len(ids)]
    next_date = np.append(date[1:], 0)[: len(ids)]
    gap = has_next & (next_date - expires > GRACE_DAYS)

    rows = np.flatnonzero(valid)
    place, first, start_row = _number(ids[rows], gap[rows])
    start_row = rows[start_row]
    ends = _ends(ids[rows], start_row)  # the last row of each spell, among rows
    if as_published:
        same_day = (has_next & (next_date == date))[rows]
        kept, churned = _published(ids[rows], date[rows], expires[rows], gap[rows], labelled[rows], same_day)
    else:
        kept = ends == np.arange(len(rows))
        final = (expires[rows] <= LAST_CHURN_DAY) | labelled[rows]
        churned = gap[rows] | final
    duration = expires[rows] - date[start_row]
    kept &= duration > 0

    before = np.append(0, expires[rows][:-1])[: len(rows)]  # the end of the spell before, at the first row of a spell
    lead = np.searchsorted(rows, start_row)
    days_between = np.where(place > 0, date[start_row] - before[lead], np.nan)
    if as_published:  # there it is only known at the spell's first transaction and read off at its last
        days_between = np.where(first, days_between, np.nan)
    start = date[start_row[kept]]
    table = pd.DataFrame(
        {
            "msno": np.asarray(customers, dtype=object)[ids[rows[kept]]],
            "start": start.astype("datetime64[D]").astype("datetime64[ns]"),
            "duration": duration[kept].astype(np.int32),
            "event": churned[kept],
            "n_prev_churns": place[kept].astype(np.int16),
            "days_between_subs": days_between[kept].astype(np.float32),
        }
    )
    begin = transactions.iloc[order[last_of_day[start_row[kept]]]]
    for name in ("payment_plan_days", "plan_list_price", "actual_amount_paid", "payment_method_id"):
        table[name] = begin[name].to_numpy()
    for name in ("is_auto_renew", "is_cancel"):
        table[name] = begin[name].to_numpy() == 1
    return _with_members(table, members, start)


def _with_members(table: pd.DataFrame, members: pd.DataFrame, start: Ints) -> pd.DataFrame:
    names = pd.Index(members["msno"])
    if not names.is_unique:
        twice = names[names.duplicated()][0]
        raise ValueError(f"members_v3.csv has the customer {twice!r} more than once; expected Kaggle's file.")
    at = names.get_indexer(pd.Index(table["msno"]))
    # one more row, of missing values, for customers who are not among the members
    known = members.drop(columns="msno").reset_index(drop=True).reindex(np.where(at >= 0, at, len(members)))
    registered = known["registration_init_time"].to_numpy()
    is_known = ~np.isnan(registered)
    since = np.full(len(table), np.nan)
    where = "members_v3.csv, registration_init_time"
    since[is_known] = start[is_known] - days_of(registered[is_known], where)
    table["days_since_reg_init"] = since.astype(np.float32)
    age = known["bd"].to_numpy(dtype=np.float64)
    table["age_at_start"] = np.round(age - (_AGE_DAY - start) / 365).astype(np.float32)
    for name in ("city", "registered_via"):
        table[name] = known[name].to_numpy(dtype=np.float32)
    gender = known["gender"].astype(object)
    table["gender"] = gender.where(gender.notna(), None).to_numpy()
    return table


def _number(ids: Ints, gap: Bools) -> tuple[Ints, Bools, Ints]:
    """Of each row: how many spells came before, whether it is its spell's first, and the number of that first row."""
    new_customer = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    new_spell = np.append(False, gap[:-1])[: len(ids)] & ~new_customer
    first = new_customer | new_spell
    position = np.arange(len(ids))
    start = np.maximum.accumulate(np.where(first, position, 0)) if len(ids) else position
    total = np.cumsum(new_spell)
    customer_start = np.maximum.accumulate(np.where(new_customer, position, 0)) if len(ids) else position
    return total - total[customer_start], first, start


def _ends(ids: Ints, group: Any) -> Ints:
    """The last row of the run of equal (customer, group) that each row belongs to."""
    last = np.append((ids[1:] != ids[:-1]) | (group[1:] != group[:-1]), True)[: len(ids)]
    places = np.flatnonzero(last)
    return places[np.cumsum(np.append(0, last[:-1])[: len(ids)].astype(np.int64))]


def _published(
    ids: Ints, date: Ints, expires: Ints, gap: Bools, labelled: Bools, same_day: Bools
) -> tuple[Bools, Bools]:
    """Which rows end a spell, and which of these are events, as in the dataset that was published."""
    last_date = date[_ends(ids, np.zeros(len(ids)))]
    on_last = date == last_date
    final = on_last & (expires <= LAST_CHURN_DAY)
    labelled = on_last & labelled
    churned = gap | final | labelled
    ever = np.bincount(ids, weights=churned, minlength=ids.max(initial=-1) + 1)[ids] > 0
    kept = (churned | (~ever & on_last)) & ~same_day & ~(gap & final & labelled)
    return kept, churned
